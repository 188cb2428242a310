package e2e

import (
	"bytes"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The operator collects garbage before its container's memory limit ends it.
func TestOperatorKnowsItsMemoryLimit(t *testing.T) {
	s := cluster(t)
	pod, err := s.operatorPod(t.Context())
	must(t, err)
	if pod == nil {
		t.Fatal("no replica of the operator leads")
	}
	limit := float64(pod.Spec.Containers[0].Resources.Limits.Memory().Value())
	raw, err := s.clients.CoreV1().Pods(operatorNamespace).ProxyGet("http", pod.Name, "8080", "metrics", nil).DoRaw(t.Context())
	must(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(raw))
	must(t, err)
	family := families["go_gc_gomemlimit_bytes"]
	if family == nil || len(family.Metric) != 1 {
		t.Fatalf("the operator tells no memory limit of Go's: %v", family)
	}
	if known := family.Metric[0].GetGauge().GetValue(); limit == 0 || known < limit*0.85 || known > limit*0.95 {
		t.Errorf("the container may use %.0f bytes, and Go keeps to %.0f", limit, known)
	}
}

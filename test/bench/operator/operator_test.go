package operator

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/test/bench/figures"
	"toolcall.dev/operator/test/bench/standalone"
)

func TestAPodsVariablesAreResolvedAsAKubeletDoes(t *testing.T) {
	t.Parallel()
	fieldRef := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "j", UID: "job-uid"}}
	job.Spec.Template.Labels = map[string]string{batchv1.ControllerUidLabel: "job-uid"}
	job.Spec.Template.Spec.Containers = []corev1.Container{{Env: []corev1.EnvVar{
		{Name: wire.EnvCall, Value: "c"},
		{Name: wire.EnvToken, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "token"}}},
		{Name: wire.EnvJobUID, ValueFrom: fieldRef("metadata.labels['" + batchv1.ControllerUidLabel + "']")},
		{Name: wire.EnvPodUID, ValueFrom: fieldRef("metadata.uid")},
		{Name: wire.EnvNode, ValueFrom: fieldRef("spec.nodeName")},
	}}}
	pod := podOf(job)
	pod.UID = "pod-uid"
	want := map[string]string{
		wire.EnvCall: "c", wire.EnvToken: "secret", wire.EnvJobUID: "job-uid", wire.EnvPodUID: "pod-uid", wire.EnvNode: standalone.NodeName,
	}
	if diff := cmp.Diff(want, containerEnv(pod, "secret")); diff != "" {
		t.Error(diff)
	}
	if !metav1.IsControlledBy(pod, job) || job.Spec.Template.Spec.NodeName != "" {
		t.Errorf("the pod is %+v, the Job's template %+v", pod.ObjectMeta, job.Spec.Template.Spec)
	}
}

func TestCostsArePerCall(t *testing.T) {
	t.Parallel()
	done := &outcome{latencies: []float64{0.1, 0.3, 0.2, 0.4}, warm: 3, took: 2 * time.Second}
	got := newPart(partWarm, done, standalone.CPU{standalone.Operator: 0.01})
	if got.CallsPerSecond != 2 || got.CPU[standalone.Operator] != 2.5 || got.WarmShare != 0.75 || got.Latency.P50 != 0.2 {
		t.Errorf("got %+v", got)
	}
	writes := &figures.Writes{ByName: map[string]float64{"create jobs": 4, "patch toolcalls/status": 8}, Refused: 1}
	got.Writes, got.Before, got.After = writes.PerCall(4), &standalone.Memory{RSS: 1}, &standalone.Memory{RSS: 2}
	r := &Report{
		Floor: []*floorResult{{
			Variant: "as installed", Rules: 7, Alone: figures.Summarize([]float64{0.005}), AtOnce: 32, CallsPerSecond: 200.04,
			CPU: map[string]float64{standalone.APIServer: 3, standalone.Etcd: 0.5},
		}},
		Parts:    []*part{got, newPart(partBare, &outcome{latencies: []float64{1}, took: time.Second}, nil)},
		Finished: &finishedResult{Calls: 50000, ReadySeconds: 1.5},
	}
	out := new(strings.Builder)
	figures.Print(out, r, true)
	for _, part := range []string{
		"| as installed | 7 | 5.0 | 5.0 | 5.0 | 200.0 (32) | 0.0 | 0.0 | 0.0 | 3.00 | 0.50 |",
		"| warm | 4 | 2.0 | 0.200 | 0.400 | 0.400 | 75 % | 3.00 | 1 | 1 | 2 |", "| warm | 2.50 |  |  |  | 2.50 |",
		"without an operator | 1 | 1.0 | 1.000 | 1.000 | 1.000 |  |  |  |  |  |", "| warm: create jobs | 1.00 |",
		"| 0 | 0.0 | 0.0 | 0.0 |  |  |", "| 50000 | 0.0 | 0.0 | 0.0 | 1.5 | 0.0 |", "| 50000 | 0.000 | 0.000 | 0.000 | 0 % |",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is not in\n%s", part, out)
		}
	}
}

func TestTheFloorIsMeasuredWithAndWithoutRules(t *testing.T) {
	apiservertest.Needs(t)
	apiservertest.Reads(t, "config")
	t.Chdir("../../..")
	var c Command
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	c.AddFlags(fs)
	if err := fs.Parse([]string{"-only", "floor", "-calls", "20", "-beside", "."}); err != nil {
		t.Fatal(err)
	}
	if err := c.Measure(t.Context(), t.Logf); err != nil {
		t.Fatal(err)
	}
	var variants []string
	for _, f := range c.report.Floor {
		variants = append(variants, f.Variant)
		if f.Alone.Count != 2 || f.Latency.Count != 20 || f.Alone.Min <= 0 || f.CallsPerSecond <= 0 || f.CPU[standalone.APIServer] <= 0 {
			t.Errorf("got %+v", f)
		}
		if stripped := f.Variant == c.report.Floor[2].Variant; stripped && f.Rules != 0 {
			t.Errorf("%s has %d rules", f.Variant, f.Rules)
		}
	}
	want := []string{"as installed", "without admission policies", "without admission policies and CEL rules", "as in ."}
	if diff := cmp.Diff(want, variants); diff != "" {
		t.Error(diff)
	}
}

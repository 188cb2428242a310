package mcpserver

import (
	"testing"

	"k8s.io/utils/ptr"
)

func TestOutcomesOfMetrics(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result  Result
		creates bool
		want    string
	}{
		"a call that ended":            {Result{Call: "c", Phase: "Denied", RetrySafe: ptr.To(true)}, true, "Denied"},
		"arguments that are wrong":     {Result{RetrySafe: ptr.To(true)}, true, "NotCreated"},
		"a request_id used before":     {Result{Call: "c", RetrySafe: ptr.To(true)}, true, "NotCreated"},
		"a lost response":              {Result{Call: "c", RetrySafe: ptr.To(false)}, true, "Unknown"},
		"a list":                       {Result{succeeded: true}, false, "Succeeded"},
		"a call that is asked for":     {Result{Call: "c", Phase: "Running", succeeded: true}, false, "Succeeded"},
		"a session that isn't allowed": {Result{RetrySafe: ptr.To(true)}, false, "Failed"},
	} {
		if got := outcomeOf(&test.result, test.creates); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

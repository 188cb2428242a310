package mcpserver

import (
	"testing"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/internal/mcpserver/reply"
)

func TestOutcomesOfMetrics(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result  reply.Result
		creates bool
		want    string
	}{
		"a call that ended":            {reply.Result{Call: "c", Phase: "Denied", RetrySafe: ptr.To(true)}, true, "Denied"},
		"arguments that are wrong":     {reply.Result{RetrySafe: ptr.To(true)}, true, "NotCreated"},
		"a request_id used before":     {reply.Result{Call: "c", RetrySafe: ptr.To(true)}, true, "NotCreated"},
		"a lost response":              {reply.Result{Call: "c", RetrySafe: ptr.To(false)}, true, "Unknown"},
		"a list":                       {reply.Result{Succeeded: true}, false, "Succeeded"},
		"a call that is asked for":     {reply.Result{Call: "c", Phase: "Running", Succeeded: true}, false, "Succeeded"},
		"a session that isn't allowed": {reply.Result{RetrySafe: ptr.To(true)}, false, "Failed"},
	} {
		if got := outcomeOf(&test.result, test.creates); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

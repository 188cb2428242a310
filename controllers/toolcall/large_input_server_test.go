package toolcall_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/testing/fixture"
)

// Input that the cache leaves out is read when it is needed: when the call is decided about, and when it is handed over.
func TestLargeInputIsNotInTheCacheAndReachesTheRunnerWhole(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	text := fixture.LongText(40 << 10)
	script, err := json.Marshal(map[string]string{"command": "cat <<'END'\n" + text + "END"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		spec func(*v1alpha1.ToolCallSpec)
		got  func(*wire.Assignment) string
		want string
	}{
		"source": {
			func(s *v1alpha1.ToolCallSpec) {
				s.Shell, s.Code = nil, &v1alpha1.CodeAction{Language: "python", Source: "x = '''" + text + "'''"}
			},
			func(a *wire.Assignment) string { return string(a.Source) }, "x = '''" + text + "'''",
		},
		"stdin": {
			func(s *v1alpha1.ToolCallSpec) { s.Stdin = text },
			func(a *wire.Assignment) string { return string(a.Stdin) }, text,
		},
		"env": {
			func(s *v1alpha1.ToolCallSpec) { s.Env = []v1alpha1.CallEnvVar{{Name: "LARGE", Value: text[:30<<10]}} },
			func(a *wire.Assignment) string {
				layers := a.Environment.Layers
				return layers[len(layers)-1].Vars[0].Value
			}, text[:30<<10],
		},
		"arguments": {
			func(s *v1alpha1.ToolCallSpec) {
				s.Shell, s.Tool = nil, &v1alpha1.ToolAction{Name: "bash", Arguments: &runtime.RawExtension{Raw: script}}
			},
			func(a *wire.Assignment) string { return a.Argv[len(a.Argv)-1] }, "cat <<'END'\n" + text + "END",
		},
	} {
		t.Run(name, func(t *testing.T) {
			call := w.Call(name, func(c *v1alpha1.ToolCall) { tc.spec(&c.Spec) })
			seen := &v1alpha1.ToolCall{}
			if err := w.Client.Get(context.Background(), client.ObjectKeyFromObject(call), seen); err != nil {
				t.Fatal(err)
			}
			if raw, err := json.Marshal(seen.Spec); err != nil || len(raw) > 4<<10 {
				t.Errorf("the cache keeps %d bytes of input, %v", len(raw), err)
			}
			w.Reconcile(call)
			if s := w.Get(call).Status; s.Phase.Terminal() {
				t.Fatalf("ended %s: %s", s.Reason, s.Message)
			}
			job := w.Job(call)
			r := w.Runner(job, w.Pod(job))
			w.Reconcile(call)
			m := r.Receive()
			if m.Assign == nil {
				t.Fatalf("got %+v; want the call", m)
			}
			if diff := cmp.Diff(tc.want, tc.got(m.Assign)); diff != "" {
				t.Errorf("the runner got something else: %.500s", diff)
			}
		})
	}
}

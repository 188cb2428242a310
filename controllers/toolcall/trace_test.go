package toolcall_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/otlp"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/testing/fixture"
	"toolcall.dev/operator/internal/testing/otlptest"
	"toolcall.dev/operator/internal/tracing"
)

// traced has the calls of a world exported to an endpoint, and counts what is lost.
func traced(t *testing.T, w *fixture.World, endpoint *otlptest.Endpoint, o tracing.Options) (export *otlp.Export, lost *atomic.Int64) {
	t.Helper()
	lost = &atomic.Int64{}
	export, err := otlp.New(t.Context(), endpoint.Getenv, otlp.Options{
		Service: "toolcall-operator", Version: "v1", Signals: []otlp.Signal{otlp.Traces, otlp.Metrics},
		Lost: func(_ otlp.Signal, n int) { lost.Add(int64(n)) }, Log: func(error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	if w.Reconciler.Trace, err = tracing.New(export.Traces, export.Metrics, o); err != nil {
		t.Fatal(err)
	}
	return export, lost
}

func TestAnEndedCallIsASpanAndAPointOfTheMetric(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	for _, o := range []tracing.Options{{}, {Arguments: true, Results: true}} {
		endpoint := otlptest.Collector(t)
		export, lost := traced(t, w, endpoint, o)
		outcome := fixture.Completed
		outcome.Reason, outcome.ExitCode = result.NonZeroExit, result.Exit(3)
		call, _ := w.EndWith(outcome)
		if err := export.Shutdown(t.Context()); err != nil || lost.Load() != 0 {
			t.Fatalf("%d are lost: %v", lost.Load(), err)
		}
		span := endpoint.Span(t, "execute_tool bash")
		want := map[string]any{
			"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "bash", "gen_ai.tool.type": "function",
			"gen_ai.tool.call.id": string(call.UID), "error.type": v1alpha1.ReasonNonZeroExit, "process.executable.name": "bash",
			"process.exit.code": int64(3), "k8s.namespace.name": w.Namespace, "k8s.pod.name": call.Status.Pod, "k8s.node.name": "node-1",
			"toolcall.name": call.Name, "toolcall.phase": "Failed", "toolcall.reason": v1alpha1.ReasonNonZeroExit, "toolcall.path": "Cold",
		}
		if o.Arguments {
			want["gen_ai.tool.call.arguments"], want["gen_ai.tool.call.result"] = `{"command":"echo hi"}`, call.Status.Output
		}
		if diff := cmp.Diff(want, otlptest.Attributes(span.GetAttributes())); diff != "" {
			t.Error(diff)
		}
		for _, stage := range []string{"accept", "start", "process"} {
			if child := endpoint.Span(t, stage); string(child.GetParentSpanId()) != string(span.GetSpanId()) {
				t.Errorf("%s is no child of the call", stage)
			}
		}
		points := endpoint.Histogram(t, "gen_ai.execute_tool.duration")
		if len(points) != 1 || points[0].GetCount() != 1 {
			t.Fatalf("the metric has %v", points)
		}
		if text := points[0].String(); strings.Contains(text, "echo") || strings.Contains(text, call.Name) {
			t.Errorf("the metric has %s", text)
		}
	}
}

// A denied call has no process, and a collector that never answers delays no call.
func TestADeniedCallIsRecordedWhileTheCollectorHangs(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	endpoint, release := otlptest.Stuck(t)
	export, lost := traced(t, w, endpoint, tracing.Options{})
	call := w.Call("c", func(c *v1alpha1.ToolCall) {
		c.Spec = v1alpha1.ToolCallSpec{Tool: &v1alpha1.ToolAction{Name: "no-such-tool"}}
	})
	w.Reconcile(call)
	if phase := w.Get(call).Status.Phase; phase != v1alpha1.PhaseDenied {
		t.Errorf("the call is %s", phase)
	}
	if ended, _ := w.EndWith(fixture.Completed); ended.Status.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("the call is %s", ended.Status.Phase)
	}
	release()
	if err := export.Shutdown(t.Context()); err != nil || lost.Load() != 0 {
		t.Errorf("%d are lost: %v", lost.Load(), err)
	}
}

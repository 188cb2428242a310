package toolcall_test

import (
	"context"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/testing/fixture"
)

// With the API server's own answers and the cache as it is.
func TestARunnerIsServedForAsLongAsItsJobAndItsCallAreThere(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Records = &dispatch.Records{Cached: fixture.Shared.GetCache(), Live: fixture.Shared.GetAPIReader()}
	w.Restart()
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	w.Reconcile(call)
	job := w.Job(call)
	pod := w.Pod(job)
	r := w.Runner(job, pod)
	w.Reconcile(call)
	if m := r.Receive(); m.Assign == nil {
		t.Fatalf("got %+v; want the call", m)
	}
	own := &wire.Serving{Owner: wire.Owner{Kind: wire.KindCall, UID: string(call.UID), Name: call.Name}}
	w.Restart()
	r.Connect(w, own.UID)
	stranger := &fixture.Runner{T: t, Config: w.RunnerConfig(job, pod)}
	if !stranger.Refused(w, own) {
		t.Error("another process with the token speaks for the call")
	}
	// A result is taken when the Job is gone, also on another connection.
	background := client.PropagationPolicy("Background")
	if err := w.Client.Delete(context.Background(), &batchv1.Job{ObjectMeta: job.ObjectMeta}, background); err != nil {
		t.Fatal(err)
	}
	r.Connect(w, own.UID)
	r.Report(w, call.UID, fixture.Completed)
	w.Reconcile(call)
	if m := r.Receive(); m.Ack == nil {
		t.Errorf("got %+v; want an acknowledgement", m)
	}
	if !stranger.Refused(w, nil) {
		t.Error("the token of a Job that is gone counts")
	}
}

package controllers_test

import (
	"context"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/dial"
)

// refused dials and says that the runner gives up.
func (r *runner) refused(w *world, call dial.Call) bool {
	r.t.Helper()
	r.config.Endpoints = []string{w.address}
	conn, err := r.config.Dial(context.Background(), call)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.Receive()
	return err == nil && m.Refuse != nil && m.Refuse.CallUID == call.UID
}

// With the API server's own answers and the cache as it is.
func TestARunnerIsServedForAsLongAsItsJobAndItsCallAreThere(t *testing.T) {
	w := newWorld(t)
	w.records = &dispatch.Records{Cached: shared.GetCache(), Live: shared.GetAPIReader()}
	w.restart()
	w.environment("env", asDefault)
	call := w.call("c")
	w.reconcile(call)
	job := w.job(call)
	pod := w.pod(job)
	r := w.runner(job, pod)
	w.reconcile(call)
	if m := r.receive(); m.Assign == nil {
		t.Fatalf("got %+v; want the call", m)
	}
	own := dial.Call{UID: string(call.UID), Name: call.Name}
	w.restart()
	r.connect(w, own.UID)
	stranger := &runner{t: t, config: w.runnerConfig(job, pod)}
	if !stranger.refused(w, own) {
		t.Error("another process with the token speaks for the call")
	}
	// A result is taken when the Job is gone, also on another connection.
	background := client.PropagationPolicy("Background")
	if err := w.client.Delete(context.Background(), &batchv1.Job{ObjectMeta: job.ObjectMeta}, background); err != nil {
		t.Fatal(err)
	}
	r.connect(w, own.UID)
	r.report(w, call.UID, completed)
	w.reconcile(call)
	if m := r.receive(); m.Ack == nil {
		t.Errorf("got %+v; want an acknowledgement", m)
	}
	if !stranger.refused(w, dial.Call{}) {
		t.Error("the token of a Job that is gone counts")
	}
}

package output_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/testing/fixture"
)

// expectStream compares what a status says of stdout.
func (s *storing) expectStream(call *v1alpha1.ToolCall, state v1alpha1.StreamState, kept int64, reason string) *v1alpha1.ToolCallStatus {
	s.T.Helper()
	status := &s.Get(call).Status
	if status.Phase != v1alpha1.PhaseSucceeded {
		s.T.Fatalf("the call is %s/%s: %s", status.Phase, status.Reason, status.Message)
	}
	stdout := status.Streams.Stdout
	if stdout.State != state || stdout.Kept == nil || *stdout.Kept != kept {
		s.T.Errorf("stdout is %s with %d bytes, want %s with %d", stdout.State, ptr.Deref(stdout.Kept, -1), state, kept)
	}
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionOutputStored)
	if reason == "" && c != nil || reason != "" && (c == nil || c.Reason != reason) {
		s.T.Errorf("the condition is %+v, want %q", c, reason)
	}
	return status
}

func TestOutputThatTheStatusShortensIsStored(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	stdout, stderr := noise(1, 3<<20+7), noise(2, 200_000)
	call, p := s.ends("c", stdout, stderr)
	for s.Get(call).Status.Phase != v1alpha1.PhaseSucceeded {
		if p.isAcked() {
			t.Fatal("the runner may go, and nothing is written")
		}
		if s.reconcile(call); len(s.done) == 0 {
			continue
		}
	}
	status := s.expectStream(call, v1alpha1.StreamComplete, int64(len(stdout)), "")
	if e := status.Streams.Stderr; e.State != v1alpha1.StreamComplete || *e.Kept != int64(len(stderr)) {
		t.Errorf("stderr is %+v", e)
	}
	p.expectAck()
	if !s.isStored(call, output.Stdout, stdout) || !s.isStored(call, output.Stderr, stderr) {
		t.Error("the store has something else")
	}
	for _, want := range []string{
		"kubectl toolcall logs c -n " + s.Namespace + " --stream stdout", "--stream stderr",
		fmt.Sprintf("GET /apis/subresources.toolcall.dev/v1alpha1/namespaces/%s/toolcalls/c/log?stream=stdout", s.Namespace),
	} {
		if tail := status.Output[len(status.Output)-1000:]; !strings.Contains(tail, want) {
			t.Errorf("the output doesn't end with %q: %s", want, tail)
		}
	}
}

func TestACallThatFitsIntoItsStatusPaysNothing(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	defer s.away()()
	call, p := s.ends("c", []byte("hello\n"), []byte{0xff, 0xfe})
	writes := &statusWrites{Client: s.Client}
	s.Use = writes
	s.Rebuild()
	if again := s.reconcile(call).RequeueAfter; again != 0 {
		t.Errorf("it is looked at again after %s", again)
	}
	p.expectAck()
	status := s.Get(call).Status
	if status.Phase != v1alpha1.PhaseSucceeded || status.Streams.Stdout.State != "" || status.Streams.Stdout.Kept != nil || status.Streams.Stderr.State != "" {
		t.Errorf("it is %s, %+v", status.Phase, status.Streams)
	}
	if strings.Contains(status.Output, "kubectl") || writes.n != 1 || len(s.done) != 0 {
		t.Errorf("%d writes, %d streams, output %q", writes.n, len(s.done), status.Output)
	}
}

func TestACallEndsWithoutItsStore(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	stdout := noise(3, 2<<20+9)
	back := s.away()
	call, p := s.ends("c", stdout, nil)
	if left := s.reconcile(call).RequeueAfter; left <= 0 || left > 2*time.Second || s.Get(call).Status.Phase != v1alpha1.PhaseRunning {
		t.Fatalf("it is looked at again after %s, and is %s", left, s.Get(call).Status.Phase)
	}
	s.Clock.Set(s.Clock.Now().Add(2 * time.Second))
	s.reconcile(call)
	s.expectStream(call, v1alpha1.StreamStoring, 0, s.Get(call).Status.Conditions[len(s.Get(call).Status.Conditions)-1].Reason)
	if s.reconcile(call); p.isAcked() {
		t.Fatal("the runner may go, and its output isn't stored")
	}
	before := s.Get(call).ResourceVersion
	if again := s.reconcile(call).RequeueAfter; again <= 0 || again > 10*time.Second || s.Get(call).ResourceVersion != before {
		t.Errorf("it is looked at again after %s, or was written", again)
	}
	back()
	fixture.Next(t, s.done)
	s.reconcile(call)
	s.expectStream(call, v1alpha1.StreamComplete, int64(len(stdout)), v1alpha1.ReasonOutputKept)
	p.expectAck()
	if !s.isStored(call, output.Stdout, stdout) {
		t.Error("the store has something else")
	}
}

func TestNothingWaitsForAStoreForEver(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	defer s.away()()
	call, p := s.endsWithoutItsStore(noise(4, 1<<20))
	s.Clock.Set(s.Clock.Now().Add(5 * time.Minute))
	s.reconcile(call)
	s.Clock.Set(s.Clock.Now().Add(time.Minute))
	for len(s.Events.Events) > 0 {
		fixture.Next(t, s.Events.Events)
	}
	s.settle(call)
	s.expectStream(call, v1alpha1.StreamLost, 0, v1alpha1.ReasonOutputLost)
	p.expectAck()
	if len(s.Events.Events) != 1 {
		t.Fatalf("%d Events", len(s.Events.Events))
	}
	if event := fixture.Next(t, s.Events.Events); !strings.Contains(event, "Warning OutputLost") {
		t.Errorf("got the Event %s", event)
	}
}

func TestAnOperatorGoesOnWithTheOutputOfTheOneBefore(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	stdout := noise(5, 2<<20)
	back := s.away()
	call, p := s.endsWithoutItsStore(stdout)
	s.crash()
	s.reconcile(call)
	p.comesBack(s, call)
	if s.reconcile(call); p.isAcked() {
		t.Fatal("the runner may go, and its output isn't stored")
	}
	back()
	fixture.Next(t, s.done)
	s.reconcile(call)
	s.expectStream(call, v1alpha1.StreamComplete, int64(len(stdout)), v1alpha1.ReasonOutputKept)
	p.expectAck()
	if !s.isStored(call, output.Stdout, stdout) {
		t.Error("the store has something else")
	}
}

// While no operator ran, no pod was read: its time counts from when it can be.
func TestOutputWaitsForAnOperator(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	stdout := noise(13, 2<<20)
	back := s.away()
	call, p := s.endsWithoutItsStore(stdout)
	s.Clock.Set(s.Clock.Now().Add(30 * time.Minute))
	s.crash()
	s.reconcile(call)
	if state := s.Get(call).Status.Streams.Stdout.State; state != v1alpha1.StreamStoring {
		t.Fatalf("before the pod could dial in it is %s", state)
	}
	p.comesBack(s, call)
	s.reconcile(call)
	back()
	fixture.Next(t, s.done)
	s.reconcile(call)
	s.expectStream(call, v1alpha1.StreamComplete, int64(len(stdout)), v1alpha1.ReasonOutputKept)
	p.expectAck()
}

func TestOutputWhosePodIsGoneIsLost(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	back := s.away()
	call, p := s.endsWithoutItsStore(noise(6, 2<<20))
	pod := s.PodNamed(s.Get(call).Status.Pod)
	p.Conn.Close()
	s.crash()
	s.reconcile(call)
	if state := s.Get(call).Status.Streams.Stdout.State; state != v1alpha1.StreamStoring {
		t.Errorf("while the pod may live it is %s", state)
	}
	if err := s.Client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	back()
	s.settle(call)
	s.expectStream(call, v1alpha1.StreamLost, 0, v1alpha1.ReasonOutputLost)
}

// The operator is killed between the write of the last part and that of the status, and the pod is gone when the next one looks.
func TestOutputThatIsStoredOutlivesItsPodAndItsOperator(t *testing.T) {
	for name, isAway := range map[string]bool{"the store is there": false, "the store is away at first": true} {
		t.Run(name, func(t *testing.T) {
			s := newStoring(t)
			s.Environment("env", fixture.AsDefault)
			stdout := noise(14, 2<<20)
			back := s.away()
			call, p := s.endsWithoutItsStore(stdout)
			back()
			fixture.Next(t, s.done)
			pod := s.PodNamed(s.Get(call).Status.Pod)
			p.Conn.Close()
			s.crash()
			if err := s.Client.Delete(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			if isAway {
				back := s.away()
				s.reconcile(call)
				if state := s.Get(call).Status.Streams.Stdout.State; state != v1alpha1.StreamStoring {
					t.Errorf("while the store is away it is %s", state)
				}
				back()
			}
			s.settle(call)
			s.expectStream(call, v1alpha1.StreamComplete, int64(len(stdout)), v1alpha1.ReasonOutputKept)
			if !s.isStored(call, output.Stdout, stdout) {
				t.Error("the store has something else")
			}
		})
	}
}

func TestAStreamThatTheRunnerDoesNotHaveIsLostAtOnce(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	call, p := s.runs("c", noise(7, 1<<20), nil)
	p.forgotten = true
	p.serve()
	p.Report(s.World, call.UID, p.outcome())
	s.settle(call)
	status := s.expectStream(call, v1alpha1.StreamLost, 0, v1alpha1.ReasonOutputLost)
	if strings.Contains(status.Output, "kubectl") {
		t.Error("the output says how to get what isn't there")
	}
	p.expectAck()
}

// A session's runner drops the output of ended calls when it takes too much, also while the store is away.
func TestOutputThatTheRunnerDropsBeforeItIsStoredIsLost(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	stdout := noise(12, 3<<20)
	call, p := s.runs("c", stdout[:2<<20+1], []byte("small"))
	p.running = true
	p.serve()
	s.reconcile(call)
	fixture.Eventually(t, func() bool { return s.objects() == 2 })
	back := s.away()
	p.running, p.forgotten, p.streams["stdout"] = false, true, stdout
	p.comesBack(s, call)
	back()
	s.settle(call)
	s.expectStream(call, v1alpha1.StreamLost, 2<<20, v1alpha1.ReasonOutputLost)
	r, err := s.store.Open(t.Context(), s.key(call, output.Stdout))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := make([]byte, 2<<20)
	for at := 0; at < len(got); {
		n, err := r.ReadAt(t.Context(), got[at:], int64(at))
		if err != nil {
			t.Fatalf("at %d: %v", at, err)
		}
		at += n
	}
	var missing *output.MissingError
	if _, err := r.ReadAt(t.Context(), make([]byte, 1), 2<<20); !bytes.Equal(got, stdout[:2<<20]) || !errors.As(err, &missing) {
		t.Errorf("the store has other bytes, or more: %v", err)
	}
}

func TestPartsAreStoredWhileTheCommandRuns(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	stdout := noise(8, 3<<20)
	call, p := s.runs("c", stdout[:2<<20+1], []byte("small"))
	p.running = true
	p.serve()
	s.reconcile(call)
	fixture.Eventually(t, func() bool { return s.objects() == 2 })
	p.running, p.streams["stdout"] = false, stdout
	p.comesBack(s, call)
	s.settle(call)
	s.expectStream(call, v1alpha1.StreamComplete, int64(len(stdout)), "")
	if !s.isStored(call, output.Stdout, stdout) {
		t.Error("the store has something else")
	}
}

func TestOutputGoesWithACallThatIsDeletedWhileItRuns(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	call, p := s.runs("c", noise(9, 2<<20+1), nil)
	p.running = true
	p.serve()
	s.reconcile(call)
	fixture.Eventually(t, func() bool { return s.objects() == 2 })
	if err := s.Client.Delete(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	s.reconcile(call)
	fixture.Eventually(t, func() bool { return s.objects() == 0 })
}

func TestOutputOfASessionsCallIsStoredFromItsPod(t *testing.T) {
	s := newStoring(t)
	s.VouchForRequesters()
	s.Environment("env", fixture.AsDefault)
	session, runner := s.ReadySession("s")
	stdout := noise(10, 1<<20+3)
	back := s.away()
	call := s.CallIn(session, "c")
	s.reconcile(call)
	p := &keptPod{Runner: runner.Runner, streams: map[string][]byte{"stdout": stdout}}
	m := p.Receive()
	if m.Assign == nil {
		t.Fatalf("got %+v, want the call", m)
	}
	p.serve()
	report := &wire.Result{CallUID: string(call.UID), Decision: m.Assign.Decision, Outcome: p.outcome()}
	if err := p.Conn.Send(&wire.Message{Result: report}); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, func() bool { s.reconcile(call); return s.Outputs.Storing() == 1 })
	if p.isAcked() {
		t.Error("it is acknowledged, and nothing is written")
	}
	// The stream may have grown before the result came.
	fixture.Eventually(t, func() bool {
		s.Clock.Set(s.Clock.Now().Add(2 * time.Second))
		s.reconcile(call)
		return s.Get(call).Status.Streams != nil
	})
	if state := s.Get(call).Status.Streams.Stdout.State; state != v1alpha1.StreamStoring {
		t.Errorf("stdout is %s", state)
	}
	// A session runs nothing while too many results aren't acknowledged.
	p.expectAck()
	back()
	fixture.Next(t, s.done)
	s.reconcile(call)
	s.expectStream(call, v1alpha1.StreamComplete, int64(len(stdout)), v1alpha1.ReasonOutputKept)
	if !s.isStored(call, output.Stdout, stdout) {
		t.Error("the store has something else")
	}
}

package cluster

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/measure"
)

func TestATrackerTellsEachWaiterItsEnd(t *testing.T) {
	t.Parallel()
	tr := &Tracker{done: CallDone, waiting: map[string]*waiting{}}
	good, bad, gone, left := tr.expect("good"), tr.expect("bad"), tr.expect("gone"), tr.expect("left")
	object := func(name string, phase v1alpha1.Phase) *v1alpha1.ToolCall {
		c := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.ToolCallStatus{Phase: phase}}
		if phase.Terminal() {
			c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue}}
		}
		return c
	}
	for _, event := range []watch.Event{
		{Type: watch.Added, Object: object("good", v1alpha1.PhasePending)},
		{Type: watch.Added, Object: object("stranger", v1alpha1.PhaseSucceeded)},
		{Type: watch.Modified, Object: object("good", v1alpha1.PhaseSucceeded)},
		{Type: watch.Modified, Object: object("good", v1alpha1.PhaseSucceeded)},
		{Type: watch.Deleted, Object: object("good", v1alpha1.PhaseSucceeded)},
		{Type: watch.Modified, Object: object("bad", v1alpha1.PhaseFailed)},
		{Type: watch.Deleted, Object: object("gone", v1alpha1.PhasePending)},
		{Type: watch.Added, Object: object("left", v1alpha1.PhasePending)},
	} {
		tr.take(event)
	}
	if err := <-good.ended; err != nil || good.object.(*v1alpha1.ToolCall).Status.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("good: %v, %+v", err, good.object)
	}
	for name, w := range map[string]*waiting{"bad": bad, "gone": gone} {
		if err := <-w.ended; err == nil {
			t.Errorf("%s has no error", name)
		}
	}
	if len(left.ended) != 0 || len(tr.waiting) != 1 {
		t.Errorf("%d wait, %d ends of one that hasn't any", len(tr.waiting), len(left.ended))
	}
}

func TestSpreadKeepsSoManyOnTheirWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now, most, all atomic.Int64
		began := time.Now()
		err := Spread(t.Context(), 10, 4, func(ctx context.Context, _ int) error {
			all.Add(1)
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			return measure.Pause(ctx, time.Second)
		})
		if err != nil || all.Load() != 10 || most.Load() != 4 || time.Since(began) != 3*time.Second {
			t.Errorf("%d ran, %d at once, in %s: %v", all.Load(), most.Load(), time.Since(began), err)
		}
	})
}

func TestSpreadEndsAtTheFirstFailureAndWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		var all atomic.Int64
		do := func(ctx context.Context, i int) error {
			all.Add(1)
			if i == 2 {
				return broken
			}
			return measure.Pause(ctx, time.Hour)
		}
		if err := Spread(t.Context(), 100, 3, do); !errors.Is(err, broken) || all.Load() > 4 {
			t.Errorf("%d ran: %v", all.Load(), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := Spread(ctx, 2, 2, do); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestASessionIsReadyWhenACallWouldStartAtOnce(t *testing.T) {
	t.Parallel()
	session := func(phase v1alpha1.SessionPhase, ready metav1.ConditionStatus) *v1alpha1.ToolSession {
		return &v1alpha1.ToolSession{Status: v1alpha1.ToolSessionStatus{
			Phase: phase, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: ready}},
		}}
	}
	for _, c := range []struct {
		session    *v1alpha1.ToolSession
		done, fail bool
	}{
		{&v1alpha1.ToolSession{}, false, false},
		{session(v1alpha1.SessionPending, metav1.ConditionFalse), false, false},
		{session(v1alpha1.SessionReady, metav1.ConditionFalse), false, false},
		{session(v1alpha1.SessionReady, metav1.ConditionTrue), true, false},
		{session(v1alpha1.SessionEnded, metav1.ConditionFalse), false, true},
	} {
		if done, err := sessionReady(c.session); done != c.done || (err != nil) != c.fail {
			t.Errorf("%+v: %t, %v", c.session.Status, done, err)
		}
	}
}

func TestACallOfASessionHasNoEnvironmentOfItsOwn(t *testing.T) {
	t.Parallel()
	session := NewSession("n", "s", 3)
	session.UID = "uid"
	if *session.Spec.MaxConcurrentCalls != 3 || *session.Spec.IdleTimeoutSeconds != 0 {
		t.Errorf("got %+v", session.Spec)
	}
	call := CallOf(session, "c")
	want := &v1alpha1.SessionReference{Name: "s", UID: "uid"}
	if diff := cmp.Diff(want, call.Spec.SessionRef); diff != "" || call.Spec.EnvironmentRef != nil || call.Namespace != "n" || call.Name != "c" {
		t.Errorf("%s in %+v", diff, call)
	}
}

func TestFinishedCallsHaveTheOutputThatWasAskedFor(t *testing.T) {
	t.Parallel()
	for _, bytes := range []int{0, 1, 29, 4096} {
		status := FinishedStatus("x", bytes)
		if len(status.Stdout) != bytes || !status.Phase.Terminal() || !strings.HasPrefix(status.Output, status.Stdout) {
			t.Errorf("%d bytes: got %d, phase %s", bytes, len(status.Stdout), status.Phase)
		}
	}
}

func TestAnApprovalIsForTheCallOfItsName(t *testing.T) {
	t.Parallel()
	call := NewCall("n", "one")
	call.UID, call.Status.Approval = "uid", &v1alpha1.ApprovalStatus{Digest: "sha256:0"}
	a := approvalOf(call)
	want := v1alpha1.ToolCallApprovalSpec{
		CallRef: v1alpha1.CallReference{Name: "one", UID: "uid"}, Digest: "sha256:0", Decision: v1alpha1.DecisionApprove,
	}
	if diff := cmp.Diff(want, a.Spec); diff != "" || client.ObjectKeyFromObject(a) != client.ObjectKeyFromObject(call) {
		t.Errorf("%s in %+v", diff, a)
	}
}

package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestATrackerTellsEachWaiterItsEnd(t *testing.T) {
	t.Parallel()
	var seen []string
	tr := &Tracker{subject: Calls("n"), waiting: map[string]*waiting{}, seen: func(o client.Object, _ time.Time) { seen = append(seen, o.GetName()) }}
	good, bad, gone, left := tr.expect("good"), tr.expect("bad"), tr.expect("gone"), tr.expect("left")
	object := func(name string, phase v1alpha1.Phase) *v1alpha1.ToolCall {
		c := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.ToolCallStatus{Phase: phase}}
		if phase.Terminal() {
			c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue}}
		}
		return c
	}
	for i, event := range []watch.Event{
		{Type: watch.Added, Object: object("good", v1alpha1.PhasePending)},
		{Type: watch.Added, Object: object("stranger", v1alpha1.PhaseSucceeded)},
		{Type: watch.Modified, Object: object("good", v1alpha1.PhaseSucceeded)},
		{Type: watch.Modified, Object: object("good", v1alpha1.PhaseSucceeded)},
		{Type: watch.Deleted, Object: object("good", v1alpha1.PhaseSucceeded)},
		{Type: watch.Modified, Object: object("bad", v1alpha1.PhaseFailed)},
		{Type: watch.Deleted, Object: object("gone", v1alpha1.PhasePending)},
		{Type: watch.Added, Object: object("left", v1alpha1.PhasePending)},
	} {
		tr.take(event, time.Unix(int64(i), 0))
	}
	if err := <-good.ended; err != nil || !good.sample.Ended.Equal(time.Unix(2, 0)) {
		t.Errorf("good: %v at %s", err, good.sample.Ended)
	}
	for name, w := range map[string]*waiting{"bad": bad, "gone": gone} {
		if err := <-w.ended; err == nil {
			t.Errorf("%s has no error", name)
		}
	}
	if len(left.ended) != 0 || len(tr.waiting) != 1 || len(seen) != 8 {
		t.Errorf("%d wait, %d ends of one that hasn't any, %v was seen", len(tr.waiting), len(left.ended), seen)
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
			return Pause(ctx, time.Second)
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
			return Pause(ctx, time.Hour)
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

package trigger_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/internal/trigger"
)

func object(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// listen is the queue of the trigger's controller.
func listen(tr *trigger.Trigger) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return tr.Queue("", nil)
}

// drain takes what is ready, in its order.
func drain(queue workqueue.TypedRateLimitingInterface[reconcile.Request]) []string {
	var names []string
	synctest.Wait()
	for queue.Len() > 0 {
		request, _ := queue.Get()
		names = append(names, request.Name)
		queue.Done(request)
		synctest.Wait()
	}
	return names
}

func want(t *testing.T, queue workqueue.TypedRateLimitingInterface[reconcile.Request], names ...string) {
	t.Helper()
	if got := drain(queue); !slices.Equal(got, names) {
		t.Errorf("got %q, want %q", got, names)
	}
}

func TestWhatIsTriggeredBeforeTheControllerRunsIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := trigger.New("test")
		tr.Enqueue(object("start"), trigger.PriorityStart)
		tr.Enqueue(object("plain"), 0)
		tr.Enqueue(object("result"), trigger.PriorityResult)
		tr.Enqueue(object("raised"), 0)
		tr.Enqueue(object("raised"), trigger.PriorityResult+1)
		tr.Enqueue(object("raised"), trigger.PriorityStart)
		queue := listen(tr)
		defer queue.ShutDown()
		want(t, queue, "raised", "result", "start", "plain")
		want(t, queue)
	})
}

func TestResultsGoBeforeStartsAndStartsBeforeTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := trigger.New("test")
		queue := listen(tr)
		defer queue.ShutDown()
		tr.Enqueue(object("plain"), 0)
		for i := range 3 {
			tr.Enqueue(object(fmt.Sprint("start-", i)), trigger.PriorityStart)
		}
		tr.Enqueue(object("result"), trigger.PriorityResult)
		want(t, queue, "result", "start-0", "start-1", "start-2", "plain")
	})
}

// A call whose result has come while it waits for its start goes first.
func TestANewPriorityRaisesWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := trigger.New("test")
		queue := listen(tr)
		defer queue.ShutDown()
		tr.Enqueue(object("first"), trigger.PriorityStart)
		tr.Enqueue(object("second"), 0)
		tr.Enqueue(object("second"), trigger.PriorityResult)
		tr.Enqueue(object("second"), 0)
		want(t, queue, "second", "first")
	})
}

func TestWhatFailsIsLookedAtAgainSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queue := listen(trigger.New("test"))
		defer queue.ShutDown()
		request := reconcile.Request{NamespacedName: object("fails")}
		for range 30 {
			queue.AddRateLimited(request)
			time.Sleep(11 * time.Second)
			want(t, queue, "fails")
		}
	})
}

package trigger_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/internal/trigger"
)

func object(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// listen starts a controller's queue, and has the trigger feed it.
func listen(t *testing.T, tr *trigger.Trigger) priorityqueue.PriorityQueue[reconcile.Request] {
	t.Helper()
	queue := priorityqueue.New[reconcile.Request]("test")
	start(t, tr, queue)
	return queue
}

func start(t *testing.T, tr *trigger.Trigger, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	t.Helper()
	if err := tr.Source().Start(context.Background(), queue); err != nil {
		t.Fatal(err)
	}
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
		tr := trigger.New()
		tr.Enqueue(object("start"), trigger.PriorityStart)
		tr.Enqueue(object("plain"), 0)
		tr.Enqueue(object("result"), trigger.PriorityResult)
		tr.Enqueue(object("raised"), 0)
		tr.Enqueue(object("raised"), trigger.PriorityResult+1)
		tr.Enqueue(object("raised"), trigger.PriorityStart)
		queue := listen(t, tr)
		defer queue.ShutDown()
		want(t, queue, "raised", "result", "start", "plain")
		want(t, queue)
	})
}

func TestResultsGoBeforeStartsAndStartsBeforeTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := trigger.New()
		queue := listen(t, tr)
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
		tr := trigger.New()
		queue := listen(t, tr)
		defer queue.ShutDown()
		tr.Enqueue(object("first"), trigger.PriorityStart)
		tr.Enqueue(object("second"), 0)
		tr.Enqueue(object("second"), trigger.PriorityResult)
		tr.Enqueue(object("second"), 0)
		want(t, queue, "second", "first")
	})
}

func TestAQueueWithoutPrioritiesIsRefused(t *testing.T) {
	t.Parallel()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	if err := trigger.New().Source().Start(context.Background(), queue); err == nil {
		t.Error("results would wait behind starts")
	}
}

func TestNothingIsLostWhileTheControllerStarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := trigger.New()
		queue := priorityqueue.New[reconcile.Request]("test")
		defer queue.ShutDown()
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() { tr.Enqueue(object(fmt.Sprintf("call-%02d", i)), i%3) })
		}
		all.Go(func() { start(t, tr, queue) })
		all.Wait()
		got := drain(queue)
		slices.Sort(got)
		if len(slices.Compact(got)) != 50 {
			t.Errorf("%d of 50 are looked at", len(got))
		}
	})
}

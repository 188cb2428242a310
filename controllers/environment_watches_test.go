package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/trigger"
)

// watched is the client of a managed environments' controller.
type watched struct {
	client.Client
	// passes counts the passes over environments.
	passes atomic.Int32
	// held keeps writers of the Jobs of pools named slow until it is closed; nil for none.
	held chan struct{}
	// blocked says that a writer is held.
	blocked atomic.Bool
}

func (c *watched) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*v1alpha1.ExecutionEnvironment); ok {
		c.passes.Add(1)
	}
	return c.Client.Get(ctx, key, o, opts...)
}

func (c *watched) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if _, ok := o.(*batchv1.Job); ok && c.held != nil && strings.HasPrefix(o.GetName(), "tc-warm-slow-") {
		c.blocked.Store(true)
		<-c.held
	}
	return c.Client.Create(ctx, o, opts...)
}

// managePools has a manager look at the namespace's environments until the test ends.
func (w *world) managePools(change ...func(*watched)) *watched {
	c := &watched{}
	w.manageWith(func(mgr ctrl.Manager) error {
		c.Client = mgr.GetClient()
		for _, f := range change {
			f(c)
		}
		w.use = c
		w.rebuild()
		return w.pools.SetupWithManager(mgr, trigger.New())
	})
	return c
}

func (w *world) isReady(env *v1alpha1.ExecutionEnvironment) bool {
	now := &v1alpha1.ExecutionEnvironment{}
	if err := shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(env), now); err != nil {
		w.t.Fatal(err)
	}
	return meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionReady)
}

// One tenant's pool may be large, and its API requests slow.
func TestASlowPoolHoldsUpNoOther(t *testing.T) {
	w := newWorld(t)
	held := make(chan struct{})
	c := w.managePools(func(c *watched) { c.held = held })
	// Cleanups run last in, first out: the manager ends only after its workers.
	t.Cleanup(func() { close(held) })
	w.environment("slow", warm(1))
	eventually(t, c.blocked.Load)
	other := w.environment("other", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.WarmPool = &v1alpha1.WarmPool{Size: 2} })
	eventually(t, func() bool { return len(w.waiting(other)) == 2 })
}

// Each looked at for each that is created would be four hundred passes.
func TestANewEnvironmentHasTheOthersLeftAlone(t *testing.T) {
	w := newWorld(t)
	const count = 20
	c := w.managePools()
	for i := range count {
		env := w.environment(fmt.Sprintf("env-%02d", i))
		eventually(t, func() bool { return w.isReady(env) })
	}
	eventually(t, func() bool { return len(w.networkPolicy("toolcall-no-network").OwnerReferences) == count })
	if n := c.passes.Load(); n > 5*count {
		t.Errorf("%d passes over %d environments", n, count)
	}
}

func TestADefaultEnvironmentsChangeReplacesItsNeighboursPods(t *testing.T) {
	w := newWorld(t)
	byDefault := w.environment("default", asDefault)
	env := w.environment("env", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.WarmPool = &v1alpha1.WarmPool{Size: 1} })
	w.managePools()
	eventually(t, func() bool { return len(w.waiting(env)) == 1 })
	before := w.waiting(env)[0].Name
	w.change(byDefault, func() { byDefault.Spec.Env = []v1alpha1.EnvVar{{Name: "A", Value: "new"}} })
	replaced := func(old string) bool {
		now := w.waiting(env)
		return len(now) == 1 && now[0].Name != old
	}
	eventually(t, func() bool { return replaced(before) })
	before = w.waiting(env)[0].Name
	w.change(byDefault, func() { delete(byDefault.Annotations, v1alpha1.AnnotationDefaultEnvironment) })
	eventually(t, func() bool { return replaced(before) })
}

func TestADeletedNetworkPolicyIsMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.environment("env")
	w.environment("other")
	w.managePools()
	policy := &networkingv1.NetworkPolicy{}
	find := func() error {
		return shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.namespace, Name: "toolcall-no-network"}, policy)
	}
	eventually(t, func() bool { return find() == nil && len(policy.OwnerReferences) == 2 })
	old := policy.UID
	if err := w.client.Delete(context.Background(), policy); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return find() == nil && policy.UID != old })
}

func TestTheLastOwnersOfANetworkPolicyAreTheEnvironmentsThatAreLeft(t *testing.T) {
	w := newWorld(t)
	gone, kept := w.environment("gone"), w.environment("kept")
	w.judge(kept)
	if err := w.client.Delete(context.Background(), gone); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		err := w.client.Get(context.Background(), client.ObjectKeyFromObject(gone), &v1alpha1.ExecutionEnvironment{})
		return apierrors.IsNotFound(err)
	})
	w.judgeGone(gone)
	if owners := w.networkPolicy("toolcall-no-network").OwnerReferences; len(owners) != 1 || owners[0].UID != kept.UID {
		t.Errorf("it belongs to %v", owners)
	}
}

func TestAPassOverALargePoolDeletesAndCreatesAFewJobs(t *testing.T) {
	const limit, size = 20, 50
	w := newWorld(t)
	env := w.environment("env", warm(size))
	expectPass := func(want int, more bool) {
		t.Helper()
		result := w.fill(env)
		if n := len(w.waiting(env)); n != want {
			t.Errorf("%d Jobs after a pass, want %d", n, want)
		}
		if soon := result.RequeueAfter > 0 && result.RequeueAfter < time.Second; soon != more {
			t.Errorf("at %d Jobs, the next pass comes in %s", want, result.RequeueAfter)
		}
	}
	expectPass(limit, true)
	expectPass(2*limit, true)
	expectPass(size, false)
	before := names(w.waiting(env))
	w.change(env, func() { env.Spec.Env = []v1alpha1.EnvVar{{Name: "A", Value: "new"}} })
	for _, want := range []int{size - limit, size - 2*limit, 0} {
		expectPass(size, want > 0)
		kept := 0
		for name := range names(w.waiting(env)) {
			if before[name] {
				kept++
			}
		}
		if kept != want {
			t.Errorf("%d of the old Jobs are left, want %d", kept, want)
		}
	}
	if err := w.client.Delete(context.Background(), env); err != nil {
		t.Fatal(err)
	}
	expectPass(size-limit, true)
	expectPass(size-2*limit, true)
	expectPass(0, false)
}

package executionenvironment_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// One tenant's pool may be large, and its API requests slow.
func TestASlowPoolHoldsUpNoOther(t *testing.T) {
	w := fixture.NewWorld(t)
	held := make(chan struct{})
	c := w.ManagePools(func(c *fixture.Watched) { c.Held = held })
	// Cleanups run last in, first out: the manager ends only after its workers.
	t.Cleanup(func() { close(held) })
	w.Environment("slow", fixture.Warm(1))
	fixture.Eventually(t, c.Blocked.Load)
	other := w.Environment("other", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.WarmPool = &v1alpha1.WarmPool{Size: 2} })
	fixture.Eventually(t, func() bool { return len(w.Waiting(other)) == 2 })
}

// Each looked at for each that is created would be four hundred passes.
func TestANewEnvironmentHasTheOthersLeftAlone(t *testing.T) {
	w := fixture.NewWorld(t)
	const count = 20
	c := w.ManagePools()
	for i := range count {
		env := w.Environment(fmt.Sprintf("env-%02d", i))
		fixture.Eventually(t, func() bool { return w.IsReady(env) })
	}
	fixture.Eventually(t, func() bool { return len(w.NetworkPolicy("toolcall-no-network").OwnerReferences) == count })
	if n := c.Passes.Load(); n > 5*count {
		t.Errorf("%d passes over %d environments", n, count)
	}
}

func TestADefaultEnvironmentsChangeReplacesItsNeighboursPods(t *testing.T) {
	w := fixture.NewWorld(t)
	byDefault := w.Environment("default", fixture.AsDefault)
	env := w.Environment("env", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.WarmPool = &v1alpha1.WarmPool{Size: 1} })
	w.ManagePools()
	fixture.Eventually(t, func() bool { return len(w.Waiting(env)) == 1 })
	before := w.Waiting(env)[0].Name
	w.Change(byDefault, func() { byDefault.Spec.Env = []v1alpha1.EnvVar{{Name: "A", Value: "new"}} })
	replaced := func(old string) bool {
		now := w.Waiting(env)
		return len(now) == 1 && now[0].Name != old
	}
	fixture.Eventually(t, func() bool { return replaced(before) })
	before = w.Waiting(env)[0].Name
	w.Change(byDefault, func() { delete(byDefault.Annotations, v1alpha1.AnnotationDefaultEnvironment) })
	fixture.Eventually(t, func() bool { return replaced(before) })
}

func TestADeletedNetworkPolicyIsMadeAgain(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env")
	w.Environment("other")
	w.ManagePools()
	policy := &networkingv1.NetworkPolicy{}
	find := func() error {
		return fixture.Shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.Namespace, Name: "toolcall-no-network"}, policy)
	}
	fixture.Eventually(t, func() bool { return find() == nil && len(policy.OwnerReferences) == 2 })
	old := policy.UID
	if err := w.Client.Delete(context.Background(), policy); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, func() bool { return find() == nil && policy.UID != old })
}

func TestTheLastOwnersOfANetworkPolicyAreTheEnvironmentsThatAreLeft(t *testing.T) {
	w := fixture.NewWorld(t)
	gone, kept := w.Environment("gone"), w.Environment("kept")
	w.Judge(kept)
	if err := w.Client.Delete(context.Background(), gone); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, func() bool {
		err := w.Client.Get(context.Background(), client.ObjectKeyFromObject(gone), &v1alpha1.ExecutionEnvironment{})
		return apierrors.IsNotFound(err)
	})
	w.JudgeGone(gone)
	if owners := w.NetworkPolicy("toolcall-no-network").OwnerReferences; len(owners) != 1 || owners[0].UID != kept.UID {
		t.Errorf("it belongs to %v", owners)
	}
}

func TestAPassOverALargePoolDeletesAndCreatesAFewJobs(t *testing.T) {
	const limit, size = 20, 50
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(size))
	expectPass := func(want int, more bool) {
		t.Helper()
		result := w.Fill(env)
		if n := len(w.Waiting(env)); n != want {
			t.Errorf("%d Jobs after a pass, want %d", n, want)
		}
		if soon := result.RequeueAfter > 0 && result.RequeueAfter < time.Second; soon != more {
			t.Errorf("at %d Jobs, the next pass comes in %s", want, result.RequeueAfter)
		}
	}
	expectPass(limit, true)
	expectPass(2*limit, true)
	expectPass(size, false)
	before := names(w.Waiting(env))
	w.Change(env, func() { env.Spec.Env = []v1alpha1.EnvVar{{Name: "A", Value: "new"}} })
	for _, want := range []int{size - limit, size - 2*limit, 0} {
		expectPass(size, want > 0)
		kept := 0
		for name := range names(w.Waiting(env)) {
			if before[name] {
				kept++
			}
		}
		if kept != want {
			t.Errorf("%d of the old Jobs are left, want %d", kept, want)
		}
	}
	if err := w.Client.Delete(context.Background(), env); err != nil {
		t.Fatal(err)
	}
	expectPass(size-limit, true)
	expectPass(size-2*limit, true)
	expectPass(0, false)
}

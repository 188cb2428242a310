package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// No more processes run at the same time than the environment lets, and a flood holds up its sender only.
func TestCallsTakeTurns(t *testing.T) {
	coldFirst(t, testCallsTakeTurns, wayImage)
}

func testCallsTakeTurns(t *testing.T, w way) {
	sp := w.newSpace(t)
	sp.newEnvironment(t, "narrow", func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.MaxConcurrentCalls = ptr.To[int32](2)
		e.Spec.WarmPool = &v1alpha1.WarmPool{Size: 0}
	})
	flooder, other := sp.newAgent(t, "flooder"), sp.newAgent(t, "other")
	sp.allow(t, "bash", flooder.subject, use("bash"))
	sp.bind(t, "bash-too", rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "bash"}, other.subject)
	sp.awaitTrue(t, "rights of the callers", func(context.Context) (bool, error) {
		return sp.mayUse(t, flooder, "bash") && sp.mayUse(t, other, "bash"), nil
	})
	var flood []*v1alpha1.ToolCall
	for range 2 {
		flood = append(flood, sp.createAs(t, flooder, in("narrow", shell("echo go >&2; "+held))))
	}
	first := []*v1alpha1.ToolCall{sp.awaitLine(t, flood[0], "go"), sp.awaitLine(t, flood[1], "go")}
	for range 6 {
		flood = append(flood, sp.createAs(t, flooder, in("narrow", shell("sleep 0.7"))))
	}
	late := sp.createAs(t, other, in("narrow", shell("sleep 0.1")))
	for _, call := range append(flood[2:], late) {
		sp.awaitPhase(t, call, v1alpha1.PhasePending)
	}
	for _, call := range first {
		sp.letGo(t, call)
	}
	done := []*v1alpha1.ToolCall{sp.awaitFinished(t, late)}
	for _, call := range flood {
		done = append(done, sp.awaitFinished(t, call))
	}
	for _, call := range done {
		if call.Status.Phase != v1alpha1.PhaseSucceeded {
			t.Fatalf("call %s ended %s: %s", call.Name, call.Status.Phase, call.Status.Message)
		}
	}
	if most := atTheSameTime(done); most > 2 {
		t.Errorf("%d calls ran at the same time", most)
	}
	before := 0
	for _, call := range done[1:] {
		if call.Status.StartTime.Time.Before(done[0].Status.StartTime.Time) {
			before++
		}
	}
	// The two that ran, and one more where both ended before the operator had seen it.
	if before > 3 {
		t.Errorf("%d of the flood's 8 calls went before the other caller's one", before)
	}
	sp.awaitTrue(t, "count of active calls", func(ctx context.Context) (bool, error) {
		env := &v1alpha1.ExecutionEnvironment{}
		err := sp.client.Get(ctx, client.ObjectKey{Namespace: sp.namespace, Name: "narrow"}, env)
		return env.Status.ActiveCalls == 0, err
	})
}

// atTheSameTime is the largest number of processes that ran at one moment.
func atTheSameTime(calls []*v1alpha1.ToolCall) int {
	type change struct {
		at time.Time
		by int
	}
	var changes []change
	for _, c := range calls {
		changes = append(changes, change{c.Status.StartTime.Time, 1}, change{c.Status.CompletionTime.Time, -1})
	}
	slices.SortFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })
	running, most := 0, 0
	for _, c := range changes {
		running += c.by
		most = max(most, running)
	}
	return most
}

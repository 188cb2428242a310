package toolcall_test

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/testing/fixture"
)

func TestAnEnvironmentSaysThatTheNodeOfAColdCallCannotHoldItsPolicy(t *testing.T) {
	w := fixture.NewWorld(t)
	policy := w.ListedPrograms()
	env := w.Environment("env", fixture.AsDefault)
	w.ExpectReady(env, "before any runner")
	w.RunOn("old", fixture.HoldsNot)
	w.ExpectUnavailable(env, "after a call", "1 of 1 nodes that runners were on lately can't: old gives no Landlock")
	before := w.Judge(env).ResourceVersion
	if w.Judge(env).ResourceVersion != before {
		t.Error("the status was written without need")
	}
	w.Restart()
	w.ExpectUnavailable(env, "after a restart of the operator", "old gives no Landlock")
	w.Clock.Set(w.Clock.Now().Add(time.Hour))
	w.ExpectUnavailable(env, "an hour later", "old gives no Landlock")

	policy.Spec.Binaries.Enforcement = v1alpha1.EnforcementName
	policy.Spec.Network = &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkUnrestricted}
	if err := w.Client.Update(context.Background(), policy); err != nil {
		t.Fatal(err)
	}
	w.ExpectReady(env, "under Name, with an unrestricted network")
}

func TestAnEnvironmentRecoversOnNodesThatCanHoldItsPolicy(t *testing.T) {
	w := fixture.NewWorld(t)
	w.ListedPrograms()
	env := w.Environment("env", fixture.AsDefault)
	w.ExpectReady(env, "before any runner")
	w.RunOn("old", fixture.HoldsNot)
	w.ExpectUnavailable(env, "on a node that can't", "1 of 1 nodes")
	w.RunOn("new", fixture.HoldsAll)
	w.ExpectUnavailable(env, "on two nodes", "1 of 2 nodes that runners were on lately can't: old gives no Landlock")
	if again := w.Fill(env).RequeueAfter; again <= 0 || again > 5*time.Minute {
		t.Errorf("it is looked at again after %s; want when the first node counts no more", again)
	}
	w.RunOn("old", fixture.HoldsAll)
	w.ExpectReady(env, "on the first node again, with another kernel")
	w.RunOn("older", fixture.HoldsNot)
	w.ExpectUnavailable(env, "on a third node", "1 of 3 nodes")

	w.Clock.Set(w.Clock.Now().Add(4 * time.Minute))
	w.RunOn("new", fixture.HoldsAll)
	w.ExpectUnavailable(env, "a while later", "1 of 3 nodes")
	w.Clock.Set(w.Clock.Now().Add(time.Minute))
	w.ExpectReady(env, "where the third node isn't seen any more")

	w.RunOn("older", fixture.HoldsNot)
	w.ExpectUnavailable(env, "when it is seen again", "older gives no Landlock")
	w.Restart()
	w.RunOn("new", fixture.HoldsAll)
	w.ExpectReady(env, "after a restart, on a node that can")
}

func TestAChangedEnvironmentIsJudgedAnew(t *testing.T) {
	w := fixture.NewWorld(t)
	w.ListedPrograms()
	env := w.Environment("env", fixture.AsDefault)
	w.ExpectReady(env, "before any runner")
	w.RunOn("old", fixture.HoldsNot)
	w.ExpectUnavailable(env, "on a node that can't", "old gives no Landlock")
	w.Change(env, func() { env.Spec.NodeSelector = map[string]string{"kernel": "new"} })
	w.ExpectReady(env, "on other nodes")
}

func TestAnEnvironmentSaysThatNodesOfWaitingPodsCannotHoldItsPolicy(t *testing.T) {
	w := fixture.NewWorld(t)
	w.ListedPrograms()
	env := w.Environment("env", fixture.Warm(2))
	w.Fill(env)
	for i, job := range w.Waiting(env) {
		config := w.RunnerConfig(&job, w.Pod(&job))
		config.Hello.Node, config.Hello.Support = []string{"old", "new"}[i], []*rules.Support{fixture.HoldsNot, fixture.HoldsAll}[i]
		(&fixture.Runner{T: t, Config: config}).Connect(w, "")
	}
	w.FillUntilOffered(env)
	w.ExpectUnavailable(env, "with two waiting pods", "1 of 2 nodes that runners were on lately can't: old gives no Landlock")
	w.Clock.Set(w.Clock.Now().Add(time.Hour))
	w.ExpectUnavailable(env, "while they wait", "1 of 2 nodes")
}

// Nobody has to look at the environment for it: the call's own changes do.
func TestAColdCallHasItsEnvironmentJudged(t *testing.T) {
	w := fixture.NewWorld(t)
	w.ListedPrograms()
	w.ManagePools()
	env := w.Environment("env", fixture.AsDefault)
	fixture.Eventually(t, func() bool { return w.IsReady(env) })
	w.RunOn("old", fixture.HoldsNot)
	fixture.Eventually(t, func() bool { return !w.IsReady(env) })
}

func TestAnEnvironmentSaysThatItsImageRunsAppletsUnseen(t *testing.T) {
	w := fixture.NewWorld(t)
	policy := w.ListedPrograms()
	env := w.Environment("env", fixture.AsDefault)
	program := v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "ls"}}
	shell := v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "echo hi"}}
	isolation := &result.Isolation{LandlockABI: 6, Programs: true, Network: result.NetworkPod, UnheldApplets: result.Paths{"/bin/busybox"}}
	refused := result.Outcome{Reason: result.IsolationUnavailable, Message: "It was not started.", Isolation: isolation}
	w.ExpectReady(env, "before any call")
	w.RunApplets(program, refused)
	w.ExpectUnavailable(env, "after a call that was refused", `"/bin/busybox" of the image runs its applets without executing them. Calls that may start one don't start.`)
	before := w.Judge(env).ResourceVersion
	if w.Judge(env).ResourceVersion != before {
		t.Error("the status was written without need")
	}

	policy.Spec.Binaries.MultiCall = v1alpha1.MultiCallAllow
	if err := w.Client.Update(context.Background(), policy); err != nil {
		t.Fatal(err)
	}
	allowed := fixture.Completed
	allowed.Isolation = isolation
	w.RunApplets(shell, allowed)
	const note = v1alpha1.MessageReadyBut + `"/bin/busybox" of the image runs its applets without executing them, so to list one of them is to list all`
	if c := w.Readiness(env); c.Status != metav1.ConditionTrue || c.Message != note {
		t.Errorf("where it is allowed, Ready is %s: %s", c.Status, c.Message)
	}

	// Of other programs names are looked at.
	both := *isolation
	both.NamesOnly = result.Paths{"/bin/busybox", "/bin/coreutils"}
	allowed.Isolation = &both
	w.RunApplets(shell, allowed)
	const looked = `names of "/bin/coreutils" of the image are only looked at: each is one file for the kernel, which can't tell its names apart`
	if c := w.Readiness(env); c.Status != metav1.ConditionTrue || c.Message != note+"; "+looked {
		t.Errorf("with names that are looked at, Ready is %s: %s", c.Status, c.Message)
	}
	allowed.Isolation = isolation
	w.RunApplets(shell, allowed)

	// Another image has none. A call says so for what calls like it can start.
	allowed.Isolation = &result.Isolation{LandlockABI: 6, Programs: true, Network: result.NetworkPod}
	w.RunApplets(shell, allowed)
	if c := w.Readiness(env); c.Message != note {
		t.Errorf("after a shell call alone: %s", c.Message)
	}
	w.RunApplets(program, allowed)
	if c := w.Readiness(env); c.Status != metav1.ConditionTrue || c.Message != "Calls can run" {
		t.Errorf("without such a program, Ready is %s: %s", c.Status, c.Message)
	}
	allowed.Isolation = &result.Isolation{LandlockABI: 6, Programs: true, Network: result.NetworkPod, NamesOnly: result.Paths{"/bin/coreutils"}}
	w.RunApplets(program, allowed)
	if c := w.Readiness(env); c.Status != metav1.ConditionTrue || c.Message != v1alpha1.MessageReadyBut+looked {
		t.Errorf("with names alone, Ready is %s: %s", c.Status, c.Message)
	}
}

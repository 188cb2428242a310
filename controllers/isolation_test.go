package controllers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

var (
	holdsAll    = &rules.Support{LandlockABI: rules.ABIScopes, Listener: true, AddDescriptor: true, ReadMemory: true, Trace: true}
	holdsNot    = &rules.Support{}
	unavailable = result.Outcome{Reason: result.IsolationUnavailable, Message: "The node has no Landlock."}
)

// listedPrograms has the kernel hold what calls start.
func (w *world) listedPrograms() *v1alpha1.ExecutionPolicy {
	w.t.Helper()
	policy := &v1alpha1.ExecutionPolicy{}
	if err := w.client.Get(context.Background(), types.NamespacedName{Name: w.openPolicyOnce()}, policy); err != nil {
		w.t.Fatal(err)
	}
	policy.Spec.Binaries = &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Allowed: []string{"ls", "echo"}}
	if err := w.client.Update(context.Background(), policy); err != nil {
		w.t.Fatal(err)
	}
	return policy
}

func (w *world) readiness(env *v1alpha1.ExecutionEnvironment) *metav1.Condition {
	w.t.Helper()
	return meta.FindStatusCondition(w.judge(env).Status.Conditions, v1alpha1.ConditionReady)
}

func (w *world) expectReady(env *v1alpha1.ExecutionEnvironment, when string) {
	w.t.Helper()
	if c := w.readiness(env); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonReady {
		w.t.Errorf("%s: Ready is %s (%s): %s", when, c.Status, c.Reason, c.Message)
	}
}

func (w *world) expectUnavailable(env *v1alpha1.ExecutionEnvironment, when, want string) {
	w.t.Helper()
	if c := w.readiness(env); c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonIsolationUnavailable || !strings.Contains(c.Message, want) {
		w.t.Errorf("%s: Ready is %s (%s): %s; want %q", when, c.Status, c.Reason, c.Message, want)
	}
}

// runOn runs a cold call on a node, whose runner is gone afterwards.
func (w *world) runOn(node string, support *rules.Support) {
	w.t.Helper()
	call := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "on-" + node + "-"},
		Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "echo hi"}},
	}
	w.create(call)
	w.reconcile(call)
	job := w.job(call)
	config := w.runnerConfig(job, w.pod(job))
	config.Hello.Node, config.Hello.Support = node, support
	r := &runner{t: w.t, config: config}
	r.connect(w, "")
	w.reconcile(call)
	if r.receive().Assign == nil {
		w.t.Fatal("the runner wasn't given the call")
	}
	outcome := completed
	if support == holdsNot {
		outcome = unavailable
	}
	r.report(w, call.UID, outcome)
	w.reconcile(call)
	r.conn.Close()
	eventually(w.t, func() bool { return w.hub.Len() == 0 })
	if got := w.get(call).Status.Reason; got != outcome.Reason {
		w.t.Fatalf("the call ended as %s", got)
	}
}

func TestAnEnvironmentSaysThatTheNodeOfAColdCallCannotHoldItsPolicy(t *testing.T) {
	w := newWorld(t)
	policy := w.listedPrograms()
	env := w.environment("env", asDefault)
	w.expectReady(env, "before any runner")
	w.runOn("old", holdsNot)
	w.expectUnavailable(env, "after a call", "1 of 1 nodes that runners were on lately can't: old gives no Landlock")
	before := w.judge(env).ResourceVersion
	if w.judge(env).ResourceVersion != before {
		t.Error("the status was written without need")
	}
	w.restart()
	w.expectUnavailable(env, "after a restart of the operator", "old gives no Landlock")
	w.clock.set(w.clock.Now().Add(time.Hour))
	w.expectUnavailable(env, "an hour later", "old gives no Landlock")

	policy.Spec.Binaries.Enforcement = v1alpha1.EnforcementText
	policy.Spec.Network = &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkUnrestricted}
	if err := w.client.Update(context.Background(), policy); err != nil {
		t.Fatal(err)
	}
	w.expectReady(env, "under Text, with an unrestricted network")
}

func TestAnEnvironmentRecoversOnNodesThatCanHoldItsPolicy(t *testing.T) {
	w := newWorld(t)
	w.listedPrograms()
	env := w.environment("env", asDefault)
	w.expectReady(env, "before any runner")
	w.runOn("old", holdsNot)
	w.expectUnavailable(env, "on a node that can't", "1 of 1 nodes")
	w.runOn("new", holdsAll)
	w.expectUnavailable(env, "on two nodes", "1 of 2 nodes that runners were on lately can't: old gives no Landlock")
	if again := w.fill(env).RequeueAfter; again <= 0 || again > 5*time.Minute {
		t.Errorf("it is looked at again after %s; want when the first node counts no more", again)
	}
	w.runOn("old", holdsAll)
	w.expectReady(env, "on the first node again, with another kernel")
	w.runOn("older", holdsNot)
	w.expectUnavailable(env, "on a third node", "1 of 3 nodes")

	w.clock.set(w.clock.Now().Add(4 * time.Minute))
	w.runOn("new", holdsAll)
	w.expectUnavailable(env, "a while later", "1 of 3 nodes")
	w.clock.set(w.clock.Now().Add(time.Minute))
	w.expectReady(env, "where the third node isn't seen any more")

	w.runOn("older", holdsNot)
	w.expectUnavailable(env, "when it is seen again", "older gives no Landlock")
	w.restart()
	w.runOn("new", holdsAll)
	w.expectReady(env, "after a restart, on a node that can")
}

func TestAChangedEnvironmentIsJudgedAnew(t *testing.T) {
	w := newWorld(t)
	w.listedPrograms()
	env := w.environment("env", asDefault)
	w.expectReady(env, "before any runner")
	w.runOn("old", holdsNot)
	w.expectUnavailable(env, "on a node that can't", "old gives no Landlock")
	w.change(env, func() { env.Spec.NodeSelector = map[string]string{"kernel": "new"} })
	w.expectReady(env, "on other nodes")
}

func TestAnEnvironmentSaysThatNodesOfWaitingPodsCannotHoldItsPolicy(t *testing.T) {
	w := newWorld(t)
	w.listedPrograms()
	env := w.environment("env", warm(2))
	w.fill(env)
	for i, job := range w.waiting(env) {
		config := w.runnerConfig(&job, w.pod(&job))
		config.Hello.Node, config.Hello.Support = []string{"old", "new"}[i], []*rules.Support{holdsNot, holdsAll}[i]
		(&runner{t: t, config: config}).connect(w, "")
	}
	w.fillUntilOffered(env)
	w.expectUnavailable(env, "with two waiting pods", "1 of 2 nodes that runners were on lately can't: old gives no Landlock")
	w.clock.set(w.clock.Now().Add(time.Hour))
	w.expectUnavailable(env, "while they wait", "1 of 2 nodes")
}

// Nobody has to look at the environment for it: the call's own changes do.
func TestAColdCallHasItsEnvironmentJudged(t *testing.T) {
	w := newWorld(t)
	w.listedPrograms()
	w.managePools()
	env := w.environment("env", asDefault)
	eventually(t, func() bool { return w.isReady(env) })
	w.runOn("old", holdsNot)
	eventually(t, func() bool { return !w.isReady(env) })
}

// runApplets runs a cold call that finds out about programs of the image.
func (w *world) runApplets(action v1alpha1.ToolCallSpec, outcome result.Outcome) {
	w.t.Helper()
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{GenerateName: "applets-"}, Spec: action}
	w.create(call)
	w.reconcile(call)
	job := w.job(call)
	config := w.runnerConfig(job, w.pod(job))
	config.Hello.Node, config.Hello.Support = "new", holdsAll
	r := &runner{t: w.t, config: config}
	r.connect(w, "")
	w.reconcile(call)
	if r.receive().Assign == nil {
		w.t.Fatal("the runner wasn't given the call")
	}
	r.report(w, call.UID, outcome)
	w.reconcile(call)
	r.conn.Close()
	eventually(w.t, func() bool { return w.hub.Len() == 0 })
	if diff := cmp.Diff([]string(outcome.Isolation.UnheldApplets), w.get(call).Status.Isolation.UnheldApplets); diff != "" {
		w.t.Error(diff)
	}
}

func TestAnEnvironmentSaysThatItsImageRunsAppletsUnseen(t *testing.T) {
	w := newWorld(t)
	policy := w.listedPrograms()
	env := w.environment("env", asDefault)
	program := v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "ls"}}
	shell := v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "echo hi"}}
	isolation := &result.Isolation{LandlockABI: 6, Programs: true, Network: result.NetworkPod, UnheldApplets: result.Paths{"/bin/busybox"}}
	refused := result.Outcome{Reason: result.IsolationUnavailable, Message: "It was not started.", Isolation: isolation}
	w.expectReady(env, "before any call")
	w.runApplets(program, refused)
	w.expectUnavailable(env, "after a call that was refused", `"/bin/busybox" of the image runs its applets without executing them. Calls that may start one don't start.`)
	before := w.judge(env).ResourceVersion
	if w.judge(env).ResourceVersion != before {
		t.Error("the status was written without need")
	}

	policy.Spec.Binaries.MultiCall = v1alpha1.MultiCallAllow
	if err := w.client.Update(context.Background(), policy); err != nil {
		t.Fatal(err)
	}
	allowed := completed
	allowed.Isolation = isolation
	w.runApplets(shell, allowed)
	const note = v1alpha1.MessageReadyBut + `"/bin/busybox" of the image runs its applets without executing them, so to list one of them is to list all`
	if c := w.readiness(env); c.Status != metav1.ConditionTrue || c.Message != note {
		t.Errorf("where it is allowed, Ready is %s: %s", c.Status, c.Message)
	}

	// Another image has none. A call says so for what calls like it can start.
	allowed.Isolation = &result.Isolation{LandlockABI: 6, Programs: true, Network: result.NetworkPod}
	w.runApplets(shell, allowed)
	if c := w.readiness(env); c.Message != note {
		t.Errorf("after a shell call alone: %s", c.Message)
	}
	w.runApplets(program, allowed)
	if c := w.readiness(env); c.Status != metav1.ConditionTrue || c.Message != "Calls can run" {
		t.Errorf("without such a program, Ready is %s: %s", c.Status, c.Message)
	}
}

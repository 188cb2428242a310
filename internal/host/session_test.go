package host

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/result"
)

// sessionOf is a session that records a runner.
func sessionOf(runner *dispatch.Session, maxConcurrent int32) *v1alpha1.ToolSession {
	s := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "session", UID: "s1"}}
	s.Spec.MaxConcurrentCalls = ptr.To(maxConcurrent)
	s.Status.Runner = &v1alpha1.RunnerBinding{PodUID: "a-pod-uid", KeyHash: runner.KeyHash()}
	return s
}

func begin(t *testing.T, runner *dispatch.Session) {
	t.Helper()
	err := runner.Begin(&wire.Begin{SessionUID: "s1", SessionName: "session", Incarnation: 1, MaxCalls: 100, MaxConcurrentCalls: 16})
	if err != nil {
		t.Fatal(err)
	}
}

func assign(t *testing.T, runner *dispatch.Session, uid string, background bool) {
	t.Helper()
	a := &wire.Assignment{CallUID: uid, CallName: "call-" + uid, Decision: "sealed", Background: background}
	if err := runner.AssignTo("s1", a); err != nil {
		t.Fatal(err)
	}
}

// report sends the result of a session's call, and waits until the hub has it.
func (p *process) report(t *testing.T, uid string) {
	t.Helper()
	if err := p.conn.Send(&wire.Message{Result: &wire.Result{CallUID: uid, Outcome: result.Outcome{Reason: result.Completed}}}); err != nil {
		t.Fatal(err)
	}
	p.o.event(t)
}

// connectSession dials in for the session, with calls that run.
func (p *process) connectSession(t *testing.T, uids ...string) *dispatch.Session {
	t.Helper()
	conn, err := p.config.DialSession(context.Background(), &wire.Session{UID: "s1", Name: "session", Incarnation: 1, Held: len(uids)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	for _, uid := range uids {
		held := &wire.Held{UID: uid, Name: "call-" + uid, State: wire.Running, Decision: "sealed"}
		if err := conn.Send(&wire.Message{Held: held}); err != nil {
			t.Fatal(err)
		}
	}
	p.conn = conn
	return p.o.event(t)
}

func nodeWith(taints ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	for _, key := range taints {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	}
	return node
}

// Rule 2: what proves that a process has ended, and what doesn't.
func TestARunnerHasEndedWhenTheKubeletSaysSoOrItsNodeIsGone(t *testing.T) {
	t.Parallel()
	bound := &v1alpha1.RunnerBinding{PodUID: "a-pod-uid", KeyHash: "key"}
	ended := container(jobspec.ContainerName, terminated("Error", ""))
	another := func(pod *corev1.Pod) { pod.UID = "another" }
	for name, tc := range map[string]struct {
		traces RunnerTraces
		want   bool
	}{
		"nothing at all":                     {RunnerTraces{}, false},
		"a pod that isn't there, on a node":  {RunnerTraces{Node: nodeWith()}, false},
		"a pod that runs":                    {RunnerTraces{Pod: podOf("a", inPhase(corev1.PodRunning)), Node: nodeWith()}, false},
		"a pod that is being deleted":        {RunnerTraces{Pod: podOf("a", deleted)}, false},
		"a pod that was marked as failed":    {RunnerTraces{Pod: podOf("a", inPhase(corev1.PodFailed))}, false},
		"its container ended":                {RunnerTraces{Pod: podOf("a", ended)}, true},
		"another container ended":            {RunnerTraces{Pod: podOf("a", container("istio-proxy", terminated("Error", "")))}, false},
		"the container of a later pod ended": {RunnerTraces{Pod: podOf("a", ended, another)}, false},
		"its node is deleted":                {RunnerTraces{NodeIsDeleted: true}, true},
		"its node is deleted, its pod isn't": {RunnerTraces{Pod: podOf("a", inPhase(corev1.PodRunning)), NodeIsDeleted: true}, true},
		"its node is out of service":         {RunnerTraces{Node: nodeWith(corev1.TaintNodeUnreachable, corev1.TaintNodeOutOfService)}, true},
		"its node is unreachable":            {RunnerTraces{Node: nodeWith(corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady)}, false},
		"its node was cordoned":              {RunnerTraces{Node: nodeWith(corev1.TaintNodeUnschedulable)}, false},
	} {
		if got := HasRunnerEnded(bound, tc.traces); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestASessionWithoutARunnerHasNoHost(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	if FindSessionHost(o.hub, &v1alpha1.ToolSession{}, RunnerTraces{NodeIsDeleted: true}) != nil {
		t.Error("it has one")
	}
	placement, err := (&InSession{}).Place(&v1alpha1.ToolCall{}, nil)
	if placement != nil || err != nil {
		t.Errorf("a call is placed there: %+v, %v", placement, err)
	}
}

func TestARunnerThatIsConnectedIsNotGone(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	runner, p := o.connectRunner(t, "a")
	session := sessionOf(runner, 1)
	for name, traces := range map[string]RunnerTraces{
		"its node is deleted": {NodeIsDeleted: true},
		"its container ended": {Pod: podOf("a", container(jobspec.ContainerName, terminated("Error", "")))},
	} {
		if h := FindSessionHost(o.hub, session, traces); h.IsGone || h.Runner != runner {
			t.Errorf("connected, and %s: %+v", name, h)
		}
	}
	p.disconnect(t)
	if h := FindSessionHost(o.hub, session, RunnerTraces{}); h.IsGone || h.Runner != nil {
		t.Errorf("not connected: %+v", h)
	}
	if h := FindSessionHost(o.hub, session, RunnerTraces{NodeIsDeleted: true}); !h.IsGone {
		t.Error("not connected, and its node deleted: it isn't gone")
	}
}

// Rule 11: what a runner that is gone may have started.
func TestARunnerMayHaveWhatItListedAndWhatItWasGiven(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	p := o.process(t, "a")
	runner := p.connect(t, "")
	session := sessionOf(runner, 4)
	p.disconnect(t)
	unheard := FindSessionHost(o.hub, session, RunnerTraces{})
	if unheard.HasSaidHello || !unheard.MayHave("listed", true) || unheard.MayHave("later", false) {
		t.Errorf("one that was never heard: %+v", unheard)
	}
	runner = p.connectSession(t, "listed")
	assign(t, runner, "given", false)
	check := func(what string) {
		t.Helper()
		h := FindSessionHost(o.hub, session, RunnerTraces{})
		for uid, want := range map[string]bool{"listed": true, "given": true, "waits": false} {
			_, accepted := h.Accepted(uid)
			if got := h.MayHave(uid, true); got != want || accepted != want || h.MayHave(uid, false) != want {
				t.Errorf("%s: it may have %s: %t, %t", what, uid, got, accepted)
			}
		}
		if !h.HasSaidHello {
			t.Errorf("%s: it wasn't heard", what)
		}
	}
	check("connected")
	p.disconnect(t)
	check("lost")
	p.connectSession(t, "listed")
	if h := FindSessionHost(o.hub, session, RunnerTraces{}); h.MayHave("given", true) {
		t.Error("it has what its hello doesn't list")
	}
}

func TestARunnerIsGivenAsManyCallsAsItsSessionMayRun(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	p := o.process(t, "a")
	runner := p.connect(t, "")
	session := sessionOf(runner, 2)
	kinds := map[string]bool{"f1": false, "f2": false, "b1": true}
	kind := func(uid string) (bool, bool) { background, known := kinds[uid]; return background, known }
	room := func() Room { return FindSessionHost(o.hub, session, RunnerTraces{}).Room(kind) }
	check := func(what string, want Room) {
		t.Helper()
		if got := room(); got != want {
			t.Errorf("%s: room for %+v, want %+v", what, got, want)
		}
	}
	check("before it has begun", Room{})
	begin(t, runner)
	check("idle", Room{2, wire.MaxBackgroundCalls})
	assign(t, runner, "f1", false)
	assign(t, runner, "b1", true)
	check("one of each", Room{1, wire.MaxBackgroundCalls - 1})
	assign(t, runner, "f2", false)
	check("all turns taken", Room{0, wire.MaxBackgroundCalls - 1})
	p.report(t, "f1")
	check("one has ended", Room{1, wire.MaxBackgroundCalls - 1})
	if err := runner.Stop("x", "call-x", result.CancelRequested); err != nil {
		t.Fatal(err)
	}
	check("one was never started", Room{1, wire.MaxBackgroundCalls - 1})
	p.conn.Close()
	o.event(t)
	check("lost", Room{})
	p.connectSession(t, "f2", "b1", "unknown")
	check("a call of which nothing is known", Room{0, wire.MaxBackgroundCalls - 2})
	runner = p.connectSession(t)
	for i := range wire.MaxUnacknowledged {
		check(fmt.Sprint(i, " results unrecorded"), Room{2, wire.MaxBackgroundCalls})
		uid := fmt.Sprint("r", i)
		assign(t, runner, uid, false)
		p.report(t, uid)
	}
	check("as many results as may be unacknowledged", Room{})
}

func TestACallOfASessionGetsItsRunnerWhileThereIsRoom(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	runner, _ := o.connectRunner(t, "a")
	session := sessionOf(runner, 1)
	known := func(uid string) (bool, bool) { return false, true }
	place := func(background bool) *Placement {
		t.Helper()
		placer := Placer(&InSession{Host: FindSessionHost(o.hub, session, RunnerTraces{}), IsBackground: known})
		call := &v1alpha1.ToolCall{}
		call.Spec.Background = background
		p, err := placer.Place(call, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if place(false) != nil {
		t.Error("a runner that wasn't told of the session is given a call")
	}
	begin(t, runner)
	if p := place(false); p == nil || p.Runner != runner || p.Path != v1alpha1.PathSession || p.Create != nil {
		t.Errorf("placed: %+v", p)
	}
	assign(t, runner, "c1", false)
	if place(false) != nil || place(true) == nil {
		t.Error("a call takes a turn that there isn't, or a background call takes one")
	}
	session.UID = "another"
	if place(true) != nil {
		t.Error("the runner of another session is given a call")
	}
}

func TestARunnerOfASessionIsNotOfferedToCalls(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	runner, _ := o.connectRunner(t, "a")
	r.Offer("a-uid", "t")
	if r.ClaimForSession("t", named("session"), "s1") != runner || r.Claimed("s1") != runner {
		t.Fatal("a session claims no waiting runner")
	}
	if len(r.ReleaseOthers(named("session"), "")) != 0 || r.Claimed("s1") != runner {
		t.Error("a call of that name releases the session's claim")
	}
	begin(t, runner)
	r.Release("s1")
	r.Offer("a-uid", "t")
	if r.IsOffered("a-uid") || r.Waiting("t") != 0 || claimFor(r, "t", "c1") != nil {
		t.Error("a session's runner is offered")
	}
	if !r.IsBusy("a-uid") || r.Withdraw("a-uid") {
		t.Error("it isn't busy")
	}
}

func TestClaimsOfSessionsThatAreGoneAreReleased(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	a, _ := o.connectRunner(t, "a")
	b, _ := o.connectRunner(t, "b")
	r.Offer("a-uid", "t")
	r.Offer("b-uid", "t")
	r.ClaimForSession("t", named("c"), "gone")
	claimFor(r, "t", "c")
	if got := r.ReleaseOtherSessions(named("c"), "here"); len(got) != 1 || got[0] != a {
		t.Errorf("released %v", got)
	}
	if r.IsBusy("a-uid") || r.Claimed("c") != b {
		t.Error("the wrong claim was released")
	}
}

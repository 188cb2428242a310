package toolcall

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

func finishedNamed(name string) *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"a": "b"}},
		Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "make"}},
		Status: v1alpha1.ToolCallStatus{
			Phase: v1alpha1.PhaseSucceeded, Reason: v1alpha1.ReasonCompleted, Stdout: "output", Output: "output",
			Runner: &v1alpha1.RunnerBinding{PodUID: "p", KeyHash: "k"},
		},
	}
}

// What is remembered is bounded by what ends within a few seconds, and of each call it is what is needed.
func TestCallsThatEndedAreSoonForgotten(t *testing.T) {
	t.Parallel()
	at := clocktesting.NewFakePassiveClock(start)
	e := newFinishedCalls(at)
	for i := range 100 {
		at.SetTime(start.Add(time.Duration(i) * time.Second))
		e.keep(finishedNamed(fmt.Sprint("call-", i)))
	}
	if e.Len() != 10 {
		t.Errorf("%d calls are remembered", e.Len())
	}
	last := e.get(types.NamespacedName{Namespace: "ns", Name: "call-99"})
	if last == nil || last.UID != "uid-call-99" || last.Status.Runner.KeyHash != "k" || last.Status.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("of the last one there is %+v", last)
	}
	if last.Spec.Shell != nil || last.Status.Stdout != "" || last.Status.Output != "" || last.Labels != nil {
		t.Errorf("too much is kept: %+v", last)
	}
	if e.get(types.NamespacedName{Namespace: "other", Name: "call-99"}) != nil {
		t.Error("a call of another namespace is remembered")
	}
}

// A call of the same name that ended later isn't forgotten in place of the earlier one.
func TestANamesakeIsRememberedForItsOwnTime(t *testing.T) {
	t.Parallel()
	at := clocktesting.NewFakePassiveClock(start)
	e := newFinishedCalls(at)
	first, second := finishedNamed("same"), finishedNamed("same")
	second.UID = "another"
	e.keep(first)
	at.SetTime(start.Add(9 * time.Second))
	e.keep(second)
	at.SetTime(start.Add(15 * time.Second))
	e.keep(finishedNamed("other"))
	if got := e.get(client.ObjectKeyFromObject(second)); got == nil || got.UID != "another" {
		t.Errorf("got %+v", got)
	}
}

func TestAClockThatGoesBackForgetsNothingEarly(t *testing.T) {
	t.Parallel()
	at := clocktesting.NewFakePassiveClock(start)
	e := newFinishedCalls(at)
	e.keep(finishedNamed("a"))
	at.SetTime(start.Add(-time.Hour))
	e.keep(finishedNamed("b"))
	if e.get(types.NamespacedName{Namespace: "ns", Name: "a"}) == nil || e.get(types.NamespacedName{Namespace: "ns", Name: "b"}) == nil {
		t.Error("a call is forgotten")
	}
}

func callIn(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func TestAFloodOfEventsIsHeldBackInItsNamespace(t *testing.T) {
	t.Parallel()
	l := newRateLimits()
	count := func(namespace string, now time.Time) (allowed int) {
		for range 10 * rateBurst {
			if l.allow(namespace, now) {
				allowed++
			}
		}
		return allowed
	}
	if got := count("a", start); got != rateBurst {
		t.Errorf("at first %d Events are let through", got)
	}
	if got := count("b", start); got != rateBurst {
		t.Errorf("of another namespace %d", got)
	}
	if got := count("a", start.Add(2*time.Second)); got != 2*ratePerSecond {
		t.Errorf("two seconds later %d", got)
	}
	if got := count("a", start.Add(time.Hour)); got != rateBurst {
		t.Errorf("an hour later %d", got)
	}
}

func TestNamespacesWithEventsAreBounded(t *testing.T) {
	t.Parallel()
	l := newRateLimits()
	for i := range maxLimitedNamespaces + 10 {
		if !l.allow(fmt.Sprint("ns-", i), start) {
			t.Fatal("a namespace's first Event is held back")
		}
	}
	if n := l.limiters.Len(); n != maxLimitedNamespaces {
		t.Errorf("%d namespaces are remembered", n)
	}
}

// A namespace whose webhooks are slow must keep neither all workers from the others, nor its own results from being
// written without them.
func TestWhichShareAPassNeeds(t *testing.T) {
	t.Parallel()
	r := NewReconciler(Options{Concurrent: 4, Wake: func(types.NamespacedName) {}})
	job := &batchv1.Job{}
	take := func(e effects, n int) (got int) {
		for i := range n {
			if _, ok := r.acquireShare(callIn("a", fmt.Sprint(i)), &e); ok {
				got++
			}
		}
		return got
	}
	if n := take(effects{create: job}, 2) + take(effects{credential: job}, 2); n != 1 {
		t.Errorf("%d passes of a namespace create things", n)
	}
	if n := take(effects{adopt: job}, 4) + take(effects{remove: []*batchv1.Job{job}}, 4); n != 3 {
		t.Errorf("%d passes of a namespace change Jobs", n)
	}
	if n := take(effects{wake: time.Second}, 5); n != 5 {
		t.Errorf("only %d of 5 passes that change nothing go on", n)
	}
}

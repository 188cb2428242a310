package controllers

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestEachPhaseIsEitherInFlightOrFinished(t *testing.T) {
	t.Parallel()
	for _, phase := range append(v1alpha1.TerminalPhases(), "", v1alpha1.PhasePending, v1alpha1.PhaseRunning) {
		of := fields.Set{fieldPhase: string(phase)}
		if InFlight().Matches(of) == phase.Terminal() || finished().Matches(of) != phase.Terminal() {
			t.Errorf("%q: in flight %t, finished %t", phase, InFlight().Matches(of), finished().Matches(of))
		}
	}
}

func endedCallNamed(name string) *v1alpha1.ToolCall {
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
	var e endedCalls
	now := time.Now()
	for i := range 100 {
		e.keep(endedCallNamed(fmt.Sprint("call-", i)), now.Add(time.Duration(i)*time.Second))
	}
	if len(e.calls) != 11 || len(e.order) != 11 {
		t.Errorf("%d calls are remembered, %d in order", len(e.calls), len(e.order))
	}
	last := e.of(types.NamespacedName{Namespace: "ns", Name: "call-99"})
	if last == nil || last.UID != "uid-call-99" || last.Status.Runner.KeyHash != "k" || last.Status.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("of the last one there is %+v", last)
	}
	if last.Spec.Shell != nil || last.Status.Stdout != "" || last.Status.Output != "" || last.Labels != nil {
		t.Errorf("too much is kept: %+v", last)
	}
}

// A call of the same name that ended later isn't forgotten in place of the earlier one.
func TestANamesakeIsRememberedForItsOwnTime(t *testing.T) {
	t.Parallel()
	var e endedCalls
	now := time.Now()
	first, second := endedCallNamed("same"), endedCallNamed("same")
	second.UID = "another"
	e.keep(first, now)
	e.keep(second, now.Add(9*time.Second))
	e.keep(endedCallNamed("other"), now.Add(15*time.Second))
	if got := e.of(client.ObjectKeyFromObject(second)); got == nil || got.UID != "another" {
		t.Errorf("got %+v", got)
	}
}

package apicache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
)

// sessionWith has that many bytes of variables, and of what kubectl apply writes.
func sessionWith(variables int) *v1alpha1.ToolSession {
	s := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "session", UID: "uid", Labels: map[string]string{"app": "agent"}, Finalizers: []string{v1alpha1.SessionFinalizer},
		Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("x", variables), v1alpha1.AnnotationRestored: "velero"},
	}}
	s.Spec.Env = []v1alpha1.CallEnvVar{{Name: "A", Value: strings.Repeat("y", variables)}}
	return s
}

// Nothing bounds how many sessions a user makes, nor how long ended ones stay.
func TestASessionTakesLittleOfTheCache(t *testing.T) {
	t.Parallel()
	for _, phase := range []v1alpha1.SessionPhase{"", v1alpha1.SessionReady, v1alpha1.SessionEnded} {
		s := sessionWith(90 << 10)
		s.Labels = labelsOf(90 << 10)
		s.Status.Phase = phase
		slimSession(s)
		raw, err := json.Marshal(s)
		if err != nil || len(raw) > 2<<10 {
			t.Errorf("%d bytes of a session that is %q stay in memory (%v)", len(raw), phase, err)
		}
		if s.Annotations[v1alpha1.AnnotationRestored] != "velero" || !s.IsHeld() {
			t.Errorf("what the operator reads of a session that is %q is gone: %+v", phase, s.ObjectMeta)
		}
		once := s.DeepCopy()
		slimSession(s)
		if diff := cmp.Diff(once, s); diff != "" {
			t.Errorf("the second time changes it:\n%s", diff)
		}
	}
}

func TestASessionWithLargeVariablesIsReadWhole(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	small, large := sessionWith(10), sessionWith(maxCachedInput)
	replaced := large.DeepCopy()
	replaced.UID = "another"
	live := large.DeepCopy()
	slimSession(small)
	slimSession(large)
	got, err := Reader{Live: unasked(t)}.WholeSession(ctx, small)
	if err != nil || len(got.Spec.Env) != 1 {
		t.Errorf("a small one: %+v, %v", got, err)
	}
	got, err = Reader{Live: stored(t, false, live)}.WholeSession(ctx, large)
	if err != nil || !cmp.Equal(got.Spec.Env, live.Spec.Env) {
		t.Errorf("a large one: %v", err)
	}
	if _, err := (Reader{Live: stored(t, false, replaced)}).WholeSession(ctx, large); !errors.Is(err, errChanged) {
		t.Errorf("one that was replaced: %v", err)
	}
	if _, err := (Reader{Live: down(stored(t, false, live))}).WholeSession(ctx, large); !errors.Is(err, errDown) {
		t.Errorf("without an answer: %v", err)
	}
}

// labelsOf are labels of that many bytes.
func labelsOf(size int) map[string]string {
	all := map[string]string{}
	for left := size; left > 0; {
		key := fmt.Sprintf("%08d", len(all))
		value := strings.Repeat("v", min(60, max(0, left-len(key))))
		all[key[:min(len(key), left)]] = value
		left -= len(key) + len(value)
	}
	return all
}

// A rule that reads the labels of a session would never be true without them.
func TestTheLabelsOfASessionAreKeptOrReadPastTheCache(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	few, many := sessionWith(maxCachedInput), sessionWith(10)
	few.Labels, many.Labels = labelsOf(maxCachedLabels), labelsOf(maxCachedLabels+1)
	live := many.DeepCopy()
	slimSession(few)
	slimSession(many)
	got, err := Reader{Live: unasked(t)}.LabelledSession(ctx, few)
	if err != nil || !cmp.Equal(got.Labels, labelsOf(maxCachedLabels)) {
		t.Errorf("few labels: %+v, %v", got, err)
	}
	many.Status.Phase = v1alpha1.SessionReady
	got, err = Reader{Live: stored(t, false, live)}.LabelledSession(ctx, many)
	if err != nil || !cmp.Equal(got.Labels, live.Labels) || got.Status.Phase != many.Status.Phase || many.Labels != nil {
		t.Errorf("many labels: %+v, %v", got, err)
	}
	if _, err := (Reader{Live: down(stored(t, false, live))}).LabelledSession(ctx, many); !errors.Is(err, errDown) {
		t.Errorf("without an answer: %v", err)
	}
}

func TestSessionsAreCountedByPhaseAndEnvironment(t *testing.T) {
	t.Parallel()
	session := func(name string, phase v1alpha1.SessionPhase, named, resolved string) *v1alpha1.ToolSession {
		s := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		s.Status.Phase = phase
		if named != "" {
			s.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: named}
		}
		if resolved != "" {
			s.Status.Environment = &v1alpha1.ResolvedEnvironment{Name: resolved}
		}
		return s
	}
	r := stored(t, false,
		session("new", "", "", ""), session("starts", v1alpha1.SessionPending, "tools", ""), session("serves", v1alpha1.SessionReady, "", "tools"),
		session("renamed", v1alpha1.SessionReady, "named", "tools"),
	)
	in := func(environment string, n int) map[types.NamespacedName]int {
		return map[types.NamespacedName]int{{Namespace: "ns", Name: environment}: n}
	}
	want := map[v1alpha1.SessionPhase]map[types.NamespacedName]int{"": in("", 1), v1alpha1.SessionPending: in("tools", 1), v1alpha1.SessionReady: in("tools", 2)}
	if diff := cmp.Diff(want, CountSessions(r)); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]string{"new": "", "starts": "tools", "renamed": "tools", "absent": ""} {
		if got := EnvironmentOfSession(r, named(name)); got != named(want) {
			t.Errorf("the environment of session %s is %v, want %q", name, got, want)
		}
	}
	if got := CountSessions(down(r)); len(got) != 0 {
		t.Errorf("without an answer: %v", got)
	}
}

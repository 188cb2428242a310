package toolsession

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// crowd are the sessions of a full environment, and n that wait. The last one waits for the longest.
func crowd(n int) (env *v1alpha1.ExecutionEnvironment, all []v1alpha1.ToolSession) {
	env = &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "env"}}
	env.Spec.Sessions = &v1alpha1.SessionLimits{Max: ptr.To[int32](10)}
	for i := range n + 10 {
		s := v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("s", i), UID: types.UID(fmt.Sprint("uid-", i))}}
		s.CreationTimestamp = metav1.NewTime(time.Unix(int64(i), 0))
		s.Status.Phase, s.Status.Reason = v1alpha1.SessionPending, v1alpha1.ReasonTooManySessions
		if i < 10 {
			s.Status.Phase, s.Status.Job = v1alpha1.SessionReady, "job"
		}
		all = append(all, s)
	}
	return env, all
}

// Where no place is free a look puts nobody in order, and collects nobody.
func TestALookAtAFullEnvironmentCostsTheSameHoweverManyWait(t *testing.T) {
	cost := func(n int) float64 {
		env, all := crowd(n)
		return testing.AllocsPerRun(5, func() {
			if hasPlace(env, &all[len(all)-1], all) {
				t.Fatal("there is no place")
			}
		})
	}
	if few, many := cost(1), cost(5000); many > few+2 {
		t.Errorf("a look makes %v allocations where one waits, and %v where 5000 do", few, many)
	}
}

func TestWhatIsFreeWakesThoseWhoMayHaveIt(t *testing.T) {
	env, all := crowd(100)
	env.Spec.Sessions.Max = ptr.To[int32](12)
	everybody := func(*v1alpha1.ToolSession) bool { return true }
	in := takenOf(env.Spec.Sessions, all).letIn(all, everybody)
	if len(in) != 2 || in[0].Name != "s10" || in[1].Name != "s11" {
		t.Errorf("woken are %d", len(in))
	}
	if in := takenOf(nil, all).letIn(all, everybody); len(in) != 100 {
		t.Errorf("without limits, %d are woken", len(in))
	}
}

// A place that is free goes to the first who may have one.
func TestThoseOverTheirLimitHaveNoPlaceInLine(t *testing.T) {
	env, all := crowd(3)
	env.Spec.Sessions = &v1alpha1.SessionLimits{Max: ptr.To[int32](12), MaxPerCaller: ptr.To[int32](11)}
	for i := range all {
		all[i].Spec.RequestedBy = &v1alpha1.Requester{Username: "alice"}
	}
	bob := &all[len(all)-1]
	bob.Spec.RequestedBy.Username = "bob"
	if second := &all[11]; hasPlace(env, second, all) {
		t.Error("another comes before it, and takes the requester's last place")
	}
	if !hasPlace(env, bob, all) || !hasPlace(env, &all[10], all) {
		t.Error("there is one place for each of the two requesters")
	}
	for _, in := range []*v1alpha1.ToolSession{bob, &all[10]} {
		in.Status.Job = "job"
	}
	if hasPlace(env, &all[11], all) {
		t.Error("there is no place left")
	}
	bob.Status.Job = ""
	bob.Status.Phase = v1alpha1.SessionEnded
	if hasPlace(env, &all[11], all) {
		t.Error("its requester has no place left")
	}
}

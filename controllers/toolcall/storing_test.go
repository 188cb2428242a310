package toolcall

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
)

// The end was written by somebody else, or the answer to the write was lost.
func TestTheOutputOfACallThatHasEndedIsLookedAfterUntilItIsStored(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	looked := 0
	c.LookAfterOutput = func(types.NamespacedName) { looked++ }
	ended := func(o *observation) { o.call.Status = *o.fail("NonZeroExit", "x") }
	storing := func(o *observation) { o.call.Status.OutputState = v1alpha1.OutputStoring }
	for want, changes := range [][]change{{bound, ended}, {bound, ended, storing}} {
		o := observed(changes...)
		e := c.handled(t, Finished, o)
		if c.follow(t.Context(), o, &e); looked != want {
			t.Errorf("looked after %d times, want %d", looked, want)
		}
	}
}

// Without an output store, a session's pod has the rest, for a while.
func TestTheTextForAModelSaysWhatTheSessionsPodStillHas(t *testing.T) {
	t.Parallel()
	inSession := func(ob *observation) { ob.call.Spec.SessionRef = &v1alpha1.SessionReference{Name: "s"} }
	keeps := func(ob *observation) { ob.decision.KeepBytesPerStream = 8 << 20 }
	for name, c := range map[string]struct {
		changes   []change
		truncated bool
		isGone    bool
		want      bool
	}{
		"a call of a session":                   {[]change{bound, inSession, keeps}, true, false, true},
		"a call without a session":              {[]change{bound, keeps}, true, false, false},
		"a policy that keeps nothing":           {[]change{bound, inSession}, true, false, false},
		"a pod that is gone":                    {[]change{bound, inSession, keeps}, true, true, false},
		"a stream of which the status has all":  {[]change{bound, inSession, keeps}, false, false, false},
		"a call whose runner was never settled": {[]change{inSession}, true, false, false},
	} {
		ob := observed(c.changes...)
		s := ob.fail("NonZeroExit", "x")
		s.Output = "first and last part\n\nTook 1.0s"
		s.Streams = &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: 5 << 20, Truncated: c.truncated}}
		e := effects{status: s}
		if left := NewReconciler(Options{}).storeOutput(ob, &e, c.isGone); left != 0 {
			t.Errorf("%s: its end waits for %s", name, left)
		}
		has := strings.Contains(s.Output, "\n\nWhile the session's pod has it: More of stdout (5242880 bytes in all): kubectl toolcall logs call -n ns --stream stdout") && strings.HasSuffix(s.Output, "\n\nTook 1.0s")
		if has != c.want || !c.want && s.Output != "first and last part\n\nTook 1.0s" {
			t.Errorf("%s: %q", name, s.Output)
		}
	}
}

package toolcall

import (
	"testing"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
)

// However long a call waits for its session, a guard has the whole time to answer after that.
func TestTheWaitForASessionIsNoWaitForAGuard(t *testing.T) {
	t.Parallel()
	o := observed()
	o.call.Spec.SessionRef = &v1alpha1.SessionReference{Name: "s"}
	o.session = &inSession{}
	o.call.Status = *o.pending(v1alpha1.ReasonSessionStarting, "the session starts")
	o.now = start.Add(time.Hour)
	if since := undecidedSince(o.call, o.now); !since.Equal(o.now) {
		t.Errorf("before it was asked, the guard is late since %s", since)
	}
	asked := o.now
	o.call.Status = *o.undecided()
	o.now = asked.Add(time.Minute)
	o.call.Status = *o.undecided()
	if since := undecidedSince(o.call, o.now); !since.Equal(asked) {
		t.Errorf("the guard is asked since %s, and late since %s", asked, since)
	}
}

package toolsession

import (
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestTheMessageOfAForeignJobSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sight sight
		phase v1alpha1.SessionPhase
		want  string
	}{
		"a session that has had no pod": {sight{}, v1alpha1.SessionEnded, ": delete the Job and create the session again"},
		"one whose claim has files": {
			sight{workspace: true, bound: true}, v1alpha1.SessionPending, ": delete the Job; the session keeps its workspace and gets another pod",
		},
	} {
		o := tc.sight.observation()
		o.foreignJob = "job"
		e, err := (&Reconciler{}).place(t.Context(), o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s := e.status; s == nil || s.Phase != tc.phase || s.Reason != v1alpha1.ReasonStartFailed || !strings.HasSuffix(s.Message, tc.want) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

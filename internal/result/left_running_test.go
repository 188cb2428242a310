package result

import "testing"

func TestWhatWasLeftRunningIsSaid(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "",
		1: "1 process that the command left running was ended with it. What is to run on needs a call of its own, in a session, with background: true.",
		3: "3 processes that the command left running were ended with it. What is to run on needs a call of its own, in a session, with background: true.",
	} {
		if got := (&Outcome{LeftRunning: n}).LeftRunningLine(); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

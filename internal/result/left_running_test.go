package result

import "testing"

func TestWhatWasLeftRunningIsSaid(t *testing.T) {
	t.Parallel()
	const advice = " What is to run on needs a call of its own, in a session, with background: true, " +
		"as a command that doesn't return: without & or nohup."
	for n, want := range map[int64]string{
		0: "",
		1: "1 process that the command left running was ended with it." + advice,
		3: "3 processes that the command left running were ended with it." + advice,
	} {
		if got := (&Outcome{LeftRunning: n}).LeftRunningLine(); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

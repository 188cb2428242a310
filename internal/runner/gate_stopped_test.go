package runner

import (
	"testing"
	"time"

	"toolcall.dev/operator/internal/result"
)

// The stop of a command is nothing that the gate waits for, and holds up none that it does.
func TestAStoppedCommandHoldsUpNoExecve(t *testing.T) {
	ownRules(t)
	for i := range 60 { // it depends on which thread does what
		// On a busy machine the first SIGCONT may come before the SIGSTOP.
		const script = "(sleep 0.02; /bin/true; while kill -CONT $$; do sleep 0.1; done) >/dev/null 2>&1 & kill -STOP $$; echo done"
		cmd := inside(bash(script), "true", "sleep")
		cmd.TimeoutMilliseconds, cmd.Grace = 3000, 500*time.Millisecond
		if o := runIt(t, t.Context(), cmd); o.Reason != result.Completed {
			t.Fatalf("round %d: %s", i, describe(o))
		}
	}
}

// Package full has tests run by `make test-full` alone. That sets TOOLCALL_FULL=1 in the environment; whether a test runs
// follows from the variable, never from what is installed, so a missing program fails the full run.
package full

import (
	"os"
	"testing"
)

// Only skips the test unless this is the full run; why says what a shorter run doesn't have, or can do without.
func Only(t testing.TB, why string) {
	t.Helper()
	if !Run() {
		t.Skipf("%s: make test-full runs it", why)
	}
}

// Run says whether everything is tested.
func Run() bool { return os.Getenv("TOOLCALL_FULL") == "1" }

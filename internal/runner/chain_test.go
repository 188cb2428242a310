package runner

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"toolcall.dev/operator/internal/result"
)

// chainProgram starts chains of processes, each of which starts the next one and ends.
func chainProgram(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("testdata/chain.c")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "chain")
	compile(t, program, string(source))
	return program
}

// A list of children that was read a moment ago says nothing about chains: each process of it has ended since, and has
// started another one.
func TestChainsOfProcessesEndWithTheirCommand(t *testing.T) {
	chain := chainProgram(t)
	t.Run("when it ends", func(t *testing.T) {
		completed("ready\n", "").check(t, runIt(t, t.Context(), program(chain)))
	})
	t.Run("when it is cancelled", func(t *testing.T) {
		ctx, stdout := untilSaid(t, "ready\n", context.Canceled)
		cmd := bash(chain + " < <(exec sleep infinity)")
		cmd.Stdout, cmd.Grace = stdout, 50*time.Millisecond
		if o := runIt(t, ctx, cmd); o.Reason != result.CancelRequested || o.DurationMS > 30_000 {
			t.Error(describe(o))
		}
	})
}

// siblingSource leaves a process running whose parent is its own parent.
const siblingSource = `
#define _GNU_SOURCE
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
	if (syscall(SYS_clone, CLONE_PARENT, 0, 0, 0, 0) == 0) {
		setsid();
		close(0), close(1), close(2);
		for (;;)
			pause();
	}
	return 0;
}`

// The kernel lists it among the children of the thread that started the command, not of the first thread.
func TestASiblingOfTheCommandEndsWithIt(t *testing.T) {
	sibling := filepath.Join(t.TempDir(), "sibling")
	compile(t, sibling, siblingSource)
	completed("", "").check(t, runIt(t, t.Context(), program(sibling)))
}

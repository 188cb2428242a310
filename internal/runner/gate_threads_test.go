package runner

import (
	"path/filepath"
	"testing"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

const forkThenExecute = `
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
	if (argc > 1) { sleep(2); return 0; }
	int go[2], n = 0;
	if (pipe(go)) return 1;
	for (;;) {
		pid_t pid = fork();
		if (pid < 0) break;
		if (pid == 0) {
			char c;
			close(go[1]);
			read(go[0], &c, 1);
			execl("/proc/self/exe", "x", "y", NULL);
			_exit(0);
		}
		n++;
	}
	close(go[1]); // all of them execute at once
	while (wait(NULL) > 0 || errno == EINTR) ;
	puts("done");
	return 0;
}`

// A call that takes all processes that its user may have, and then executes many at once, leaves the supervisor without
// another thread.
func TestForksUnderALimitDontEndTheSupervisor(t *testing.T) {
	bin, work := worlds(t)
	needs(t, "setpriv", "prlimit")
	program := filepath.Join(bin, "forks")
	compile(t, program, forkThenExecute)
	for range 5 {
		// A user of its own: the limit counts what a user has.
		o := superviseApart(t, supervision{
			Argv: []string{program}, Dir: "/", NoNewPrivs: true, Harden: true,
			Rules: &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: []string{program}}},
		}, nil, "setpriv", "--reuid=61414", "--regid=61414", "--clear-groups", "prlimit", "--nproc=60:60").Outcome
		if o.Reason != result.Completed {
			t.Fatal(describe(o))
		}
	}
}

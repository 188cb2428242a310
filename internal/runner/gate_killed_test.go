package runner

import (
	"path/filepath"
	"testing"
	"time"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

const killedAtItsStart = `
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
	if (argc > 1) return 0;
	time_t end = time(NULL) + 3;
	while (time(NULL) < end) {
		pid_t p[8];
		for (int i = 0; i < 8; i++)
			if ((p[i] = fork()) == 0) { execl("/proc/self/exe", "x", "y", NULL); _exit(1); }
		for (int i = 0; i < 8; i++) {
			struct timespec ts = {0, rand() % 200000};
			nanosleep(&ts, NULL);
			kill(p[i], SIGKILL);
		}
		for (int i = 0; i < 8; i++) {
			time_t since = time(NULL);
			while (waitpid(p[i], NULL, WNOHANG) == 0)
				if (time(NULL) - since > 4) { printf("the end of a killed child isn't reported\n"); return 1; }
		}
	}
	return 0;
}`

// A process may be killed while the gate looks at it, in the stop at the end of its execve. Its parent learns of its end,
// and nothing was refused.
func TestAProcessThatIsKilledAtItsStartEnds(t *testing.T) {
	bin, work := worlds(t)
	program := filepath.Join(bin, "killed")
	compile(t, program, killedAtItsStart)
	held := supervision{
		Argv: []string{program}, Dir: "/", NoNewPrivs: true, Timeout: 30 * time.Second, Grace: 100 * time.Millisecond,
		Rules: &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: []string{program}}},
	}
	for name, o := range map[string]result.Outcome{
		"a user's supervisor": superviseApart(t, held, nobody(t)).Outcome,
		"process 1":           superviseApart(t, held, nil, asInit(t)...).Outcome,
	} {
		if o.Reason != result.Completed || len(o.Refused) > 0 {
			t.Errorf("%s: %s\nrefused %+v", name, describe(o), o.Refused)
		}
	}
}

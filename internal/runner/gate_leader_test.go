package runner

import (
	"path/filepath"
	"testing"
	"time"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

const deadLeaders = `
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void *stay(void *unused) { sleep(60); return NULL; }
int main(int argc, char **argv) {
	if (argc > 1) return 0;
	// Their first threads end right after an execve that fails; the others stay.
	for (int i = 0; i < 400; i++)
		if (fork() == 0) {
			pthread_t t;
			pthread_create(&t, NULL, stay, NULL);
			char *bad = (char *)1;
			// It is looked at and let go on, and fails in the kernel: the arguments can't be read.
			syscall(SYS_execve, "/proc/self/exe", bad, NULL);
			syscall(SYS_exit, 0);
		}
	sleep(1);
	if (fork() == 0) { execl("/proc/self/exe", "x", "y", NULL); _exit(1); }
	int status; wait(&status);
	puts("done");
	return 0;
}`

// The first thread of several that ends right after an execve that failed can't be interrupted, and has no end before the
// others have. It must not hold up a worker of the gate.
func TestAFirstThreadThatEndsHoldsUpNoWorker(t *testing.T) {
	bin, work := worlds(t)
	program := filepath.Join(bin, "leaders")
	compile(t, program, deadLeaders, "-pthread")
	o := superviseApart(t, supervision{Argv: []string{program}, Dir: "/", NoNewPrivs: true, Harden: true,
		Timeout: 30 * time.Second, Grace: 100 * time.Millisecond,
		Rules: &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: []string{program}}}}, nobody(t)).Outcome
	if o.Reason != result.Completed {
		t.Errorf("%s", describe(o))
	}
}

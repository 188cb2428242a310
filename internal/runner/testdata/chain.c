// Starts chains of processes: each starts the next one and a child that ends at once, and ends. All share their memory, and
// each has a session of its own. It says "ready" and waits for its input to end. The chains end after two minutes. A process of a chain
// lives for half a millisecond: without a pause they take all process IDs of a busy machine, where other tests run too.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { chains = 4, stacks = 512, size = 8192 };

static char memory[chains][stacks][size] __attribute__((aligned(16)));
static unsigned next[chains];
static time_t until;

static int idle(void *chain) { return 0; }

static void start(int (*f)(void *), intptr_t chain) {
	char *stack = memory[chain][next[chain]++ % stacks];
	clone(f, stack + size, CLONE_VM | SIGCHLD, (void *)chain);
}

static int generation(void *chain) {
	syscall(SYS_setsid);
	start(idle, (intptr_t)chain);
	nanosleep(&(struct timespec){0, 500000}, NULL);
	if (time(NULL) < until)
		start(generation, (intptr_t)chain);
	return 0;
}

int main(void) {
	until = time(NULL) + 120;
	for (intptr_t chain = 0; chain < chains; chain++)
		start(generation, chain);
	char c;
	write(1, "ready\n", 6);
	while (read(0, &c, 1) > 0)
		;
	return 0;
}

// Attacks that change something while the kernel is asked.
#include "attack.h"
#include <sys/mman.h>

static volatile char *raced;
static const char *good, *bad;
static volatile int flipping;

static void *flip(void *unused) {
	(void)unused;
	for (;; flipping = 1) {
		strcpy((char *)raced, good);
		strcpy((char *)raced, bad);
	}
	return NULL;
}

// The path changes while the kernel is asked: by a thread, or by another process through shared memory.
void race(int rounds, const char *one, const char *another, const char *program, int by_thread) {
	good = one, bad = another;
	for (int i = 0; i < rounds; i++) {
		raced = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		strcpy((char *)raced, good);
		pid_t other = by_thread ? 0 : fork();
		if (!by_thread && other == 0)
			flip(NULL);
		IN_CHILD({
			pthread_t thread;
			char **argv = mark_argv(by_thread ? "race" : "race-shared", program);
			if (by_thread)
				pthread_create(&thread, NULL, flip, NULL);
			while (by_thread && !flipping)
				;
			for (int j = 0; j < 20; j++)
				execve((char *)raced, argv, environ);
		});
		if (other) {
			kill(other, SIGKILL);
			finish(other);
		}
		munmap((void *)raced, 8192);
	}
}

static volatile int ready;

// execute_at_once waits for the other thread, so that both are in their execve at the same time.
static void execute_at_once(const char *path, char **argv) {
	__atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < 2)
		;
	execve(path, argv, environ);
	execve(path, argv, environ);
}

struct attempt {
	const char *path;
	char **argv;
};

static void *execute_attempt(void *a) {
	struct attempt *attempt = a;
	execute_at_once(attempt->path, attempt->argv);
	return NULL;
}

// The leader of a process and another thread execute at once: whichever comes through becomes the process, under the
// leader's number.
void leaders(int rounds) {
	for (int i = 0; i < rounds; i++)
		IN_CHILD({
			const char *program = i & 2 ? evil : NULL;
			char *nothing[] = {listed, NULL};
			struct attempt bad_one = {program ? loader : evil, mark_argv("leaders", program)}, good_one = {listed, nothing};
			struct attempt *by_thread = i & 1 ? &good_one : &bad_one, *by_leader = i & 1 ? &bad_one : &good_one;
			pthread_t thread;
			pthread_create(&thread, NULL, execute_attempt, by_thread);
			execute_at_once(by_leader->path, by_leader->argv);
			pthread_join(thread, NULL);
		});
}

static char name_path[4096];
static volatile char *name_at, *name_in_path;

static void set_name(const char *name) {
	for (int i = 0; i < 3; i++)
		name_at[i] = name_in_path[i] = name[i];
}

static void *flip_name(void *unused) {
	(void)unused;
	for (;;) {
		set_name("two");
		set_name("one");
	}
	return NULL;
}

// A program that is what it is called: its path and its name change, or its first argument.
void names(int rounds, const char *directory) {
	for (int i = 0; i < rounds; i++)
		IN_CHILD({
			static char first[4096];
			char **argv = mark_argv("names", i & 1 ? "one" : NULL);
			char *own[6] = {0};
			for (int j = 0; argv[j]; j++)
				own[j] = strdup(argv[j]);
			snprintf(first, sizeof first, i & 1 ? "%s/busybox" : "%s/one", directory);
			snprintf(name_path, sizeof name_path, "%s/one", directory);
			own[0] = first;
			name_at = i & 1 ? own[1] : first + strlen(first) - 3;
			name_in_path = name_path + strlen(name_path) - 3;
			pthread_t thread;
			pthread_create(&thread, NULL, flip_name, NULL);
			for (int j = 0; j < 20; j++)
				execve(name_path, own, environ);
		});
}

static void *execute(void *argv) {
	execve(evil, argv, environ);
	execve(loader, argv, environ);
	return NULL;
}

void threads(void) {
	IN_CHILD({
		pthread_t t[8];
		char **argv = mark_argv("thread", evil);
		for (int i = 0; i < 8; i++)
			pthread_create(&t[i], NULL, execute, argv);
		for (int i = 0; i < 8; i++)
			pthread_join(t[i], NULL);
	});
}

void many(int n) {
	for (int i = 0; i < n; i++)
		if (fork() == 0) {
			char *args[] = {listed, "nothing", NULL};
			execve(i % 2 ? evil : listed, i % 2 ? mark_argv("many", NULL) : args, environ);
			_exit(0);
		}
	while (wait(NULL) > 0 || errno == EINTR)
		;
}

// What the attacks share.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// The directory to write to, the one listed program, the loader, and the program that isn't listed.
extern char *work, *listed, *loader, evil[4096];
extern int marks;
extern char **environ;

char **mark_argv(const char *name, const char *program);
void expect(const char *what, long got, int errno_wanted);

static inline void finish(pid_t pid) {
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

#define IN_CHILD(...)               \
	do {                        \
		pid_t pid = fork(); \
		if (pid == 0) {     \
			__VA_ARGS__; \
			_exit(0);   \
		}                   \
		finish(pid);        \
		marks++;            \
	} while (0)

// Races, in races.c.
void race(int rounds, const char *one, const char *another, const char *program, int by_thread);
void leaders(int rounds);
void names(int rounds, const char *directory);
void threads(void);
void many(int n);

// A call of a session that attacks the runner, the shims, the waiting stages and the other calls: all processes of its
// pod but itself. What it reaches is printed as "escaped: ...".
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int victims, stages;

static void escaped(int pid, const char *what) {
	printf("escaped: %s %s\n", pid == 1 ? "the runner" : pid == getppid() ? "its shim" : "another", what);
}

// Calls answer -1 where they are refused.
static void refused(int pid, const char *what, long got) {
	if (got >= 0)
		escaped(pid, what);
}

static void trace(int pid) {
	refused(pid, "traced", ptrace(PTRACE_SEIZE, pid, 0, 0));
	refused(pid, "attached to", ptrace(PTRACE_ATTACH, pid, 0, 0));
	char buffer[8];
	// Any other error than a refusal says that the memory may be reached.
	struct iovec own = {buffer, sizeof buffer}, there = {(void *)0x400000, sizeof buffer};
	if (process_vm_readv(pid, &own, 1, &there, 1, 0) >= 0 || errno != EPERM)
		escaped(pid, "memory read");
	if (process_vm_writev(pid, &own, 1, &there, 1, 0) >= 0 || errno != EPERM)
		escaped(pid, "memory written");
	refused(pid, "compared", syscall(SYS_kcmp, getpid(), pid, 0 /* KCMP_FILE */, 0, 0));
}

static void signals(int pid) {
	refused(pid, "signalled", kill(pid, 0));
	refused(pid, "stopped", kill(pid, SIGSTOP));
	refused(pid, "signalled by its thread", syscall(SYS_tgkill, pid, pid, SIGURG));
	if (pid != 1)
		refused(pid, "signalled by its group", kill(-pid, SIGURG));
	siginfo_t info = {.si_code = SI_QUEUE, .si_signo = SIGURG};
	refused(pid, "signalled with a value", syscall(SYS_rt_sigqueueinfo, pid, SIGURG, &info));
	int fd = syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return;
	refused(pid, "signalled by a descriptor", syscall(SYS_pidfd_send_signal, fd, SIGURG, NULL, 0));
	for (int i = 0; i < 8; i++)
		refused(pid, "descriptor taken", syscall(SYS_pidfd_getfd, fd, i, 0));
	close(fd);
	// A socket that sends a signal to whom it is said to belong to.
	int pair[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	fcntl(pair[0], F_SETOWN, pid);
	fcntl(pair[0], F_SETSIG, SIGSTOP);
	fcntl(pair[0], F_SETFL, O_ASYNC);
	write(pair[1], "x", 1);
	close(pair[0]);
	close(pair[1]);
}

static void limits(int pid) {
	struct rlimit limit = {0, 0};
	refused(pid, "limit set", syscall(SYS_prlimit64, pid, RLIMIT_NOFILE, &limit, NULL));
	refused(pid, "priority set", setpriority(PRIO_PROCESS, pid, 19));
	struct sched_param param = {0};
	refused(pid, "scheduler set", sched_setscheduler(pid, SCHED_IDLE, &param));
	refused(pid, "moved to a group", setpgid(pid, pid));
	refused(pid, "disk priority set", syscall(SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS */, pid, 3 << 13));
	void *page = NULL;
	int status;
	refused(pid, "pages moved", syscall(SYS_move_pages, pid, 1, &page, NULL, &status, 0));
}

static void read_of(int pid, const char *name) {
	char path[128], buffer[64];
	snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		return;
	if (read(fd, buffer, sizeof buffer) > 0 || !strcmp(name, "mem"))
		escaped(pid, name);
	close(fd);
}

static void write_of(int pid, const char *name, const char *text) {
	char path[128];
	snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
	int fd = open(path, O_WRONLY);
	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) > 0) {
		strcat(path, " written");
		escaped(pid, path);
	}
	close(fd);
}

static void link_of(int pid, const char *name) {
	char path[128], buffer[4096];
	snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
	if (readlink(path, buffer, sizeof buffer) > 0)
		escaped(pid, name);
	int fd = open(path, O_PATH);
	if (fd >= 0)
		escaped(pid, name);
	close(fd);
}

static void files(int pid) {
	static const char *read[] = {"environ", "mem", "maps", "smaps", "auxv", "stack", "syscall", "io", "pagemap", "personality"};
	for (int i = 0; i < sizeof read / sizeof *read; i++)
		read_of(pid, read[i]);
	char thread[64];
	snprintf(thread, sizeof thread, "task/%d/environ", pid);
	read_of(pid, thread);
	write_of(pid, "mem", "x");
	write_of(pid, "oom_score_adj", "1000");
	write_of(pid, "oom_adj", "15");
	write_of(pid, "comm", "x");
	snprintf(thread, sizeof thread, "task/%d/comm", pid);
	write_of(pid, thread, "x");
	write_of(pid, "clear_refs", "1");
	write_of(pid, "coredump_filter", "0x7f");
	write_of(pid, "autogroup", "19");
	write_of(pid, "timerslack_ns", "1000000000");
	write_of(pid, "uid_map", "0 0 1");
	link_of(pid, "root");
	link_of(pid, "cwd");
	link_of(pid, "exe");
	for (int i = 0; i < 16; i++) {
		char name[32];
		snprintf(name, sizeof name, "fd/%d", i);
		link_of(pid, name);
		snprintf(name, sizeof name, "map_files/%x", i);
		link_of(pid, name);
	}
}

// Sockets without a file: those of this pod, as /proc/net/unix lists them.
static void sockets(void) {
	char line[4096];
	FILE *list = fopen("/proc/net/unix", "r");
	while (list && fgets(line, sizeof line, list)) {
		char *name = strchr(line, '@');
		if (!name)
			continue;
		name[strcspn(name, "\n")] = 0;
		struct sockaddr_un to = {.sun_family = AF_UNIX};
		memcpy(to.sun_path + 1, name + 1, strlen(name + 1));
		socklen_t size = offsetof(struct sockaddr_un, sun_path) + strlen(name);
		if (!strncmp(name, "@toolcall-victim", 16)) {
			int fd = socket(AF_UNIX, SOCK_STREAM, 0);
			refused(0, "connected to", connect(fd, (struct sockaddr *)&to, size));
			victims++;
			close(fd);
		}
	}
	if (list)
		fclose(list);
}

// Anybody can read how a process was started.
static int is_stage(int pid) {
	char path[64], name[64] = "";
	snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
	int fd = open(path, O_RDONLY);
	read(fd, name, sizeof name - 1);
	close(fd);
	return !strcmp(name, "toolcall-stage");
}

static void everybody(void) {
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	while (proc && (entry = readdir(proc))) {
		int pid = atoi(entry->d_name);
		if (pid <= 0 || pid == getpid())
			continue;
		victims++;
		stages += is_stage(pid);
		trace(pid);
		signals(pid);
		limits(pid);
		files(pid);
	}
	kill(-1, SIGURG);
	kill(-1, SIGKILL);
	sockets();
	printf("attacked %d, %d stages\n", victims, stages);
}

// A victim: an abstract socket, and nothing that it minds.
static void victim(const char *fifo) {
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int n = sprintf(at.sun_path + 1, "toolcall-victim-%d", getpid());
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(fd, (struct sockaddr *)&at, offsetof(struct sockaddr_un, sun_path) + 1 + n) || listen(fd, 8))
		perror("victim");
	FILE *ready = fopen(fifo, "w");
	fprintf(ready, "up\n");
	fclose(ready);
	for (;;)
		pause();
}

// Descendants that don't want to end: in sessions and groups of their own, orphans, deaf to signals.
static void outlive(const char *fifo) {
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	FILE *ready = fopen(fifo, "w");
	for (int i = 0; i < 4; i++)
		if (fork() == 0) {
			setsid();
			if (fork() == 0) {
				setsid();
				for (int fd = 0; fd < 256; fd++)
					close(fd);
				chdir("/");
				execl("/proc/self/exe", "toolcall-survivor", "pause", NULL);
				for (;;)
					pause();
			}
			_exit(0);
		}
	while (wait(NULL) > 0)
		;
	fprintf(ready, "up\n");
	fclose(ready);
}

// As many processes as there may be, for as long as the test likes.
static void bomb(const char *fifo) {
	int said = 0;
	for (;;) {
		int pid = fork();
		if (pid == 0)
			for (;;)
				fork();
		if (pid < 0 && !said++) {
			int fd = open(fifo, O_WRONLY);
			write(fd, "full\n", 5);
			close(fd);
		}
	}
}

static void descriptors(void) {
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	int n = 0;
	while (n < 10000 && open("/dev/null", O_RDONLY) >= 0)
		n++;
	printf("opened %d\n", n);
}

int main(int argc, char **argv) {
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(argv[1], "everybody"))
		everybody();
	else if (!strcmp(argv[1], "victim"))
		victim(argv[2]);
	else if (!strcmp(argv[1], "outlive"))
		outlive(argv[2]);
	else if (!strcmp(argv[1], "bomb"))
		bomb(argv[2]);
	else if (!strcmp(argv[1], "descriptors"))
		descriptors();
	else
		for (;;)
			pause();
	return 0;
}

// A listed program that tries to get an unlisted one executed. The unlisted one is a copy of this file: "mark FILE" makes
// FILE, which the test looks for. What a wall must refuse, and doesn't, is printed as "escaped: ...".
#include "attack.h"
#include <sched.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>

char *work, *listed, *loader, evil[4096];
int marks;

// Each attempt leaves its own mark.
char **mark_argv(const char *name, const char *program) {
	static char file[4096], *argv[5];
	snprintf(file, sizeof file, "%s/mark-%s-%d", work, name, marks++);
	argv[0] = (char *)name;
	int i = 1;
	if (program)
		argv[i++] = (char *)program;
	argv[i++] = "mark";
	argv[i++] = file;
	argv[i] = NULL;
	return argv;
}

void expect(const char *what, long got, int errno_wanted) {
	if (got >= 0 || errno != errno_wanted)
		printf("escaped: %s: %ld, %s\n", what, got, got < 0 ? strerror(errno) : "");
}

static void copy(const char *from, int to) {
	char buffer[65536];
	ssize_t n;
	int fd = open(from, O_RDONLY);
	while ((n = read(fd, buffer, sizeof buffer)) > 0)
		if (write(to, buffer, n) != n)
			abort();
	close(fd);
}

static void copy_to(const char *from, const char *path) {
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755);
	if (fd < 0) {
		printf("cannot copy to %s: %s\n", path, strerror(errno));
		return;
	}
	copy(from, fd);
	close(fd);
	chmod(path, 0755);
}

static void run(const char *name, const char *path, const char *program) {
	IN_CHILD(execve(path, mark_argv(name, program), environ));
}

static void files(void) {
	char path[4096], other[4096];
	run("itself", evil, NULL);
	snprintf(path, sizeof path, "/proc/self/root%s", evil);
	run("root", path, NULL);
	snprintf(path, sizeof path, "%s/copy", work);
	copy_to(listed, path);
	run("copy", path, NULL);
	snprintf(other, sizeof other, "%s/hardlink", work);
	if (link(path, other) == 0)
		run("hardlink", other, NULL);
	snprintf(other, sizeof other, "%s/symlink", work);
	if (symlink(evil, other) == 0)
		run("symlink", other, NULL);
	snprintf(other, sizeof other, "%s/renamed", work);
	if (rename(path, other) == 0)
		run("renamed", other, NULL);
	copy_to(evil, "/dev/shm/toolcall-attack");
	run("shm", "/dev/shm/toolcall-attack", NULL);
	unlink("/dev/shm/toolcall-attack");
	int fd = open(work, O_TMPFILE | O_RDWR, 0755);
	expect("linking a listed program elsewhere with its right", linkat(AT_FDCWD, "/no/such", AT_FDCWD, path, 0), ENOENT);
	if (fd < 0)
		return; // not every file system has them
	copy(evil, fd);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int readable = open(path, O_RDONLY);
	close(fd);
	IN_CHILD(fexecve(readable, mark_argv("tmpfile", NULL), environ));
	snprintf(path, sizeof path, "/dev/fd/%d", readable);
	run("devfd", path, NULL);
}

static void loaders(void) {
	char path[4096];
	char *names[] = {loader, "/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib64/../lib64/ld-linux-x86-64.so.2",
		"/usr/lib64/ld-linux-x86-64.so.2", "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "/usr/bin/ld.so"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		run("loader", names[i], evil);
	snprintf(path, sizeof path, "%s/ld-copy", work);
	copy_to(loader, path);
	run("loader-copy", path, evil);
	snprintf(path, sizeof path, "%s/ld-link", work);
	if (symlink(loader, path) == 0)
		run("loader-link", path, evil);
	int fd = open(loader, O_PATH);
	IN_CHILD(fexecve(fd, mark_argv("loader-fd", evil), environ));
	IN_CHILD(syscall(SYS_execveat, fd, "", mark_argv("loader-at", evil), environ, AT_EMPTY_PATH));
}

static void script(const char *name, const char *line) {
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", work, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755);
	dprintf(fd, "#!%s\n", line);
	close(fd);
	IN_CHILD(execve(path, mark_argv(name, NULL), environ));
}

static void scripts(void) {
	char line[4096];
	script("script-unlisted", evil);
	script("script-loader", loader);
	snprintf(line, sizeof line, "%s %s", loader, evil);
	script("script-loader-argument", line);
	script("script-shell", "/bin/sh");
}

static void memory(void) {
	unsigned flags[] = {0, 1, 2, 3, 8, 9, 16, 17, 18};
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
		int fd = syscall(SYS_memfd_create, "attack", flags[i]);
		if (fd < 0)
			continue;
		copy(evil, fd);
		fchmod(fd, 0777);
		char path[64];
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		int readable = open(path, O_RDONLY);
		close(fd);
		snprintf(path, sizeof path, "/proc/self/fd/%d", readable);
		IN_CHILD(fexecve(readable, mark_argv("memfd", NULL), environ));
		IN_CHILD(execve(path, mark_argv("memfd-path", NULL), environ));
		IN_CHILD(execve(loader, mark_argv("memfd-loader", path), environ));
		close(readable);
	}
	int fd = syscall(SYS_memfd_create, "plain", 1);
	if (fd < 0 || write(fd, "x", 1) != 1 || ftruncate(fd, 4096) != 0)
		printf("a file in memory doesn't work: %s\n", strerror(errno));
}

static void descriptors(void) {
	int dir = open(work, O_PATH | O_DIRECTORY), file = open(evil, O_PATH);
	IN_CHILD(syscall(SYS_execveat, dir, "evil", mark_argv("at", NULL), environ, 0));
	IN_CHILD(syscall(SYS_execveat, dir, "evil", mark_argv("at-nofollow", NULL), environ, AT_SYMLINK_NOFOLLOW));
	IN_CHILD(syscall(SYS_execveat, file, "", mark_argv("at-empty", NULL), environ, AT_EMPTY_PATH));
	IN_CHILD(if (fchdir(dir) == 0) execve("evil", mark_argv("relative", NULL), environ));
	IN_CHILD(if (fchdir(dir) == 0) execve("./../work/evil", mark_argv("dots", NULL), environ));
	for (int fd = 3; fd < 256; fd++)
		if (fd != dir && fd != file && fcntl(fd, F_GETFD) >= 0)
			printf("escaped: descriptor %d is inherited\n", fd);
}

static void children(void) {
	pid_t pid;
	if (posix_spawn(&pid, evil, NULL, NULL, mark_argv("spawn", NULL), environ) == 0)
		finish(pid);
	char **argv = mark_argv("vfork", NULL);
	if ((pid = vfork()) == 0) {
		execve(evil, argv, environ);
		_exit(0);
	}
	finish(pid);
	for (int i = 0; i < 2; i++) { // a child that a tracer doesn't follow
		struct { unsigned long long flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls; } args = {CLONE_UNTRACED, .exit_signal = SIGCHLD};
		argv = mark_argv("untraced", NULL);
		pid = i ? syscall(SYS_clone3, &args, sizeof args) : syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0);
		if (pid == 0) {
			execve(evil, argv, environ);
			_exit(0);
		}
		if (pid > 0)
			finish(pid);
	}
	if ((pid = fork()) == 0) { // one that job control stops and resumes
		raise(SIGSTOP);
		execve(evil, mark_argv("stopped", NULL), environ);
		_exit(0);
	}
	waitpid(pid, NULL, WUNTRACED);
	kill(pid, SIGCONT);
	finish(pid);
	IN_CHILD(prctl(PR_SET_DUMPABLE, 0); execve(evil, mark_argv("undumpable", NULL), environ));
	IN_CHILD(prctl(PR_SET_DUMPABLE, 0); execve(loader, mark_argv("undumpable-loader", evil), environ));
	IN_CHILD(setsid(); if (fork() == 0) execve(evil, mark_argv("orphan", NULL), environ));
	IN_CHILD(char *args[] = {listed, "nothing", NULL}; execve("/proc/self/exe", args, environ); puts("cannot run itself"); fflush(stdout));
}

static int victim_memory = 1;

static void processes(void) {
	pid_t victim = fork();
	if (victim == 0) {
		pause();
		_exit(0);
	}
	int value = 2;
	struct iovec local = {&value, sizeof value}, remote = {&victim_memory, sizeof value};
	expect("ptrace", ptrace(PTRACE_SEIZE, victim, 0, 0), EPERM);
	expect("attach", ptrace(PTRACE_ATTACH, victim, 0, 0), EPERM);
	expect("process_vm_writev", process_vm_writev(victim, &local, 1, &remote, 1, 0), EPERM);
	expect("process_vm_readv", process_vm_readv(victim, &local, 1, &remote, 1, 0), EPERM);
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/mem", victim);
	expect("a sibling's memory", open(path, O_RDWR), EACCES);
	snprintf(path, sizeof path, "/proc/%d/mem", getppid());
	expect("the runner's memory", open(path, O_RDONLY), EACCES);
	expect("own memory by its file", open("/proc/self/mem", O_RDWR), EACCES);
	if (open("/proc/sys/fs/binfmt_misc/register", O_WRONLY) >= 0)
		puts("escaped: a format of programs can be registered");
	kill(victim, SIGKILL);
	finish(victim);
	int signals[] = {0, SIGTERM, SIGKILL, SIGSTOP, SIGUSR1};
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
		expect("a signal to the runner", kill(getppid(), signals[i]), EPERM);
}

static void kernel(void) {
	char parameters[256] = {0};
	expect("io_uring", syscall(425, 8, parameters), ENOSYS);
	expect("a user namespace", unshare(CLONE_NEWUSER), EPERM);
	expect("chroot", chroot(work), EPERM);
	expect("mount", syscall(SYS_mount, work, work, 0, 4096, 0), EPERM);
	expect("userfaultfd", syscall(SYS_userfaultfd, 0), ENOSYS);
	expect("pidfd_getfd", syscall(438, 0, 0, 0), EPERM);
#ifdef __x86_64__
	expect("x32", syscall(SYS_getpid | 0x40000000), ENOSYS);
	// In a child: where the machine has no 32-bit calls, it ends with SIGSEGV.
	long got;
	fflush(stdout);
	pid_t caller = fork();
	if (caller == 0) {
		__asm__ volatile("int $0x80" : "=a"(got) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
		_exit(got != -ENOSYS);
	}
	int status;
	if (waitpid(caller, &status, 0) == caller && WIFEXITED(status) && WEXITSTATUS(status))
		puts("escaped: int 0x80");
	// execve by the 32-bit entry, with its argument in the low half of memory.
	char *low = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	strcpy(low, evil);
	IN_CHILD(__asm__ volatile("push %%rbx; mov %%edi, %%ebx; int $0x80; pop %%rbx"
		: "=a"(got) : "a"(11L), "D"(low), "c"(0L), "d"(0L) : "memory", "r8", "r9", "r10", "r11"));
#endif
}

// Descriptors of this process and of the runner, by their names. Those of the runner are there when it isn't hidden.
static void inherited(void) {
	char path[64];
	for (int fd = 3; fd < 64; fd++) {
		IN_CHILD(fexecve(fd, mark_argv("inherited", NULL), environ));
		pid_t owners[] = {getpid(), getppid(), 1};
		for (size_t i = 0; i < sizeof owners / sizeof *owners; i++) {
			struct stat file;
			snprintf(path, sizeof path, "/proc/%d/fd/%d", owners[i], fd);
			if (stat(path, &file) == 0 && !S_ISREG(file.st_mode) && !S_ISDIR(file.st_mode))
				continue; // to read a pipe would take for ever
			run("inherited-path", path, NULL);
			run("inherited-loader", loader, path);
			snprintf(path, sizeof path, "/proc/%d/fd/%d/evil", owners[i], fd);
			run("inherited-directory", path, NULL);
		}
	}
}

static socklen_t abstract_name(struct sockaddr_un *to, const char *name) {
	*to = (struct sockaddr_un){.sun_family = AF_UNIX};
	strncpy(to->sun_path + 1, name, sizeof to->sun_path - 2);
	return offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
}

// Sockets without a file: another process of the pod listens at the name.
static void abstract(const char *name) {
	struct sockaddr_un outside, own;
	socklen_t outside_length = abstract_name(&outside, name), own_length = abstract_name(&own, work);
	int stream = socket(AF_UNIX, SOCK_STREAM, 0), packet = socket(AF_UNIX, SOCK_DGRAM, 0);
	expect("an abstract socket", connect(stream, (struct sockaddr *)&outside, outside_length), EPERM);
	outside.sun_path[outside_length - offsetof(struct sockaddr_un, sun_path)] = 'd';
	expect("a packet to an abstract socket", sendto(packet, "x", 1, 0, (struct sockaddr *)&outside, outside_length + 1), EPERM);
	int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(server, (struct sockaddr *)&own, own_length) || listen(server, 1) || connect(client, (struct sockaddr *)&own, own_length))
		printf("cannot reach its own abstract socket: %s\n", strerror(errno));
}

static const char *base(const char *path) {
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

// Only the listed program is called attack. A program called busybox is listed as one, and told by its arguments what to be.
static int mark(char **argv, const char *file) {
	char self[4096] = "";
	if (readlink("/proc/self/exe", self, sizeof self - 1) > 0 && !strcmp(base(self), "attack"))
		return 0;
	const char *name = base(argv[0]);
	if (!strcmp(base(self), "busybox") && !strcmp(strcmp(name, "busybox") ? name : argv[1], "one"))
		return 0;
	return close(open(file, O_CREAT | O_WRONLY, 0644)) < 0;
}

int main(int argc, char **argv) {
	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], "mark"))
			return mark(argv, argv[i + 1]);
	if (argc < 5)
		return 0;
	char *what = argv[1];
	work = argv[2], listed = argv[3], loader = argv[4];
	int rounds = argc > 5 ? atoi(argv[5]) : 0;
	snprintf(evil, sizeof evil, "%s/evil", work);
	setvbuf(stdout, NULL, _IONBF, 0);
	if (!strcmp(what, "files")) files();
	else if (!strcmp(what, "loaders")) loaders();
	else if (!strcmp(what, "scripts")) scripts();
	else if (!strcmp(what, "memory")) memory();
	else if (!strcmp(what, "descriptors")) descriptors();
	else if (!strcmp(what, "children")) children();
	else if (!strcmp(what, "processes")) processes();
	else if (!strcmp(what, "kernel")) kernel();
	else if (!strcmp(what, "threads")) threads();
	else if (!strcmp(what, "many")) many(rounds);
	else if (!strcmp(what, "race-evil")) race(rounds, listed, evil, NULL, 1);
	else if (!strcmp(what, "race-loader")) race(rounds, listed, loader, evil, 1);
	else if (!strcmp(what, "race-shared")) race(rounds, listed, loader, evil, 0);
	else if (!strcmp(what, "leaders")) leaders(rounds);
	else if (!strcmp(what, "names")) names(rounds, argv[6]);
	else if (!strcmp(what, "inherited")) inherited();
	else if (!strcmp(what, "abstract")) abstract(argv[5]);
	else return 2;
	puts("done");
	return 0;
}

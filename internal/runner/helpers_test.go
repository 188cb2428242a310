package runner

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/spec"
	"toolcall.dev/operator/internal/testing/ways"
)

// helpers are the programs that the test binary can act as.
var helpers = map[string]func(args []string){
	"supervise": superviseHelper,
	"filtered":  filteredHelper,
	"flood":     floodHelper,
	"relay":     relayHelper,
	"spy":       spyHelper,
	"fault":     faultHelper,
	"async":     asyncHelper,
	"fds":       fdsHelper,
	"loop":      loopHelper,
	"demand":    demandHelper,
	"time":      timeHelper,

	"attempts-world": attemptsWorldHelper,
	"attempts":       attemptsHelper,
}

// supervision is what a supervisor that is a process of its own is to do.
type supervision struct {
	Argv, Env      []string
	Dir            string
	OpenDir        bool
	Stdin          []byte
	Timeout, Grace time.Duration
	DenyNetwork    bool
	Harden         bool
	NoNewPrivs     bool
	Rules          *rules.Rules
	// Denied are numbers of system calls that the supervisor itself can't make, DeniedIoctl of a request.
	Denied            []uint32
	DeniedIoctl       uint32
	MaxBytesPerStream int
	// Node is the kind of node that the supervisor takes this machine for.
	Node string
}

// report is what it says afterwards.
type report struct {
	PID     int
	Outcome result.Outcome
	// Left are the processes that it sees after the end, itself excluded.
	Left []string
	// Err is what kept it from supervising.
	Err string
}

func superviseHelper(args []string) {
	var s supervision
	r := report{PID: os.Getpid()}
	if err := json.Unmarshal([]byte(args[0]), &s); err != nil {
		r.Err = err.Error()
	} else if err := r.supervise(s); err != nil {
		r.Err = err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(r)
}

// giveUp gives up privileges, and then puts on a filter, which only the thread may do that gave them up.
func (s *supervision) giveUp() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if s.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	return denyCalls(s.Denied, s.DeniedIoctl)
}

func (r *report) supervise(s supervision) error {
	if s.Harden {
		if err := Harden(); err != nil {
			return err
		}
	}
	if err := s.giveUp(); err != nil {
		return err
	}
	if s.Node != "" {
		Prepare()
		*support = ways.Named(s.Node).Gives(*support)
	}
	if s.Rules == nil {
		s.Rules = rulesInForce()
	}
	cmd := Command{
		Argv: s.Argv, Env: s.Env, Dir: s.Dir, Stdin: s.Stdin, Grace: s.Grace,
		Bounds: spec.Bounds{TimeoutMilliseconds: s.Timeout.Milliseconds(), MaxBytesPerStream: max(s.MaxBytesPerStream, 64<<10), DenyNetwork: s.DenyNetwork, Rules: s.Rules},
	}
	if s.OpenDir {
		dir, err := os.Open(s.Dir)
		if err != nil {
			return err
		}
		defer dir.Close()
		cmd.DirFD, cmd.Dir = dir, "/nonexistent"
	}
	r.Outcome = Run(context.Background(), cmd)
	for _, p := range proc.All() {
		if p.PID != os.Getpid() && (os.Getpid() == 1 || p.Parent == os.Getpid()) {
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID))
			r.Left = append(r.Left, fmt.Sprintf("%d %s", p.PID, bytes.TrimSpace(comm)))
		}
	}
	return nil
}

// denyCalls makes system calls of this process fail, as a node's own filter does.
func denyCalls(numbers []uint32, request uint32) error {
	jump := func(k uint32, otherwise uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: otherwise, K: k}
	}
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	deny := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	filter := []unix.SockFilter{load(0)}
	for _, number := range numbers {
		filter = append(filter, jump(number, 1), deny)
	}
	if request != 0 {
		filter = append(filter, jump(unix.SYS_IOCTL, 3), load(24), jump(request, 1), deny)
	}
	if len(filter) == 1 {
		return nil
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	return nil
}

// asInit makes the supervisor the first process of a PID namespace, and an unprivileged one: what it is in
// a pod.
func asInit(t testing.TB) []string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make a PID namespace")
	}
	needs(t, "unshare", "setpriv")
	return []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "setpriv",
		"--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--no-new-privs"}
}

// superviseApart runs a supervisor in a process of its own, as attr says, and returns its report.
func superviseApart(t testing.TB, s supervision, attr *syscall.SysProcAttr, prefix ...string) report {
	t.Helper()
	self := publicSelf(t)
	s.Node = cmp.Or(s.Node, node)
	if s.Env == nil {
		s.Env = []string{"PATH=" + testPath}
	}
	if s.Timeout == 0 {
		s.Timeout = 5 * time.Minute // machines may be busy
	}
	arg, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	argv := append(prefix, self, string(arg))
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second
	cmd.Env = []string{"SECRET=swordfish", helperVariable + "=supervise", "GORACE=halt_on_error=1", "PATH=" + testPath, rulesVariable + "=" + os.Getenv(rulesVariable)}
	cmd.SysProcAttr = attr
	cmd.Dir = "/"
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the supervisor failed: %v\n%s\n%s", err, out, stderr.Bytes())
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r.Err != "" {
		t.Fatal("the supervisor failed: ", r.Err)
	}
	if err := r.Outcome.Validate(); err != nil {
		t.Errorf("invalid outcome: %v\n%s", err, describe(r.Outcome))
	}
	if len(r.Left) > 0 {
		t.Errorf("left behind: %q", r.Left)
	}
	return r
}

var copySelf = sync.OnceValues(func() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(os.TempDir(), "runner-test-"+rand.Text())
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	return filepath.Join(dir, "helper"), os.WriteFile(filepath.Join(dir, "helper"), data, 0o755)
})

// publicSelf is a copy of the test binary that every user may execute.
func publicSelf(t testing.TB) string {
	t.Helper()
	self, err := copySelf()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// nobody makes a process unprivileged; it skips the test where that takes more rights than we have.
func nobody(t testing.TB) *syscall.SysProcAttr {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

// floodHelper writes a number of bytes, as fast as it can.
func floodHelper(args []string) {
	n, _ := strconv.Atoi(args[0])
	chunk := []byte(strings.Repeat("0123456789abcdef0123456789abcde\n", 4096))
	for n > 0 {
		w, err := os.Stdout.Write(chunk[:min(n, len(chunk))])
		if err != nil {
			os.Exit(1)
		}
		n -= w
	}
}

// loopHelper runs a command a number of times and prints how long that took.
func loopHelper(args []string) {
	n, _ := strconv.Atoi(args[0])
	cmd := program("/bin/true")
	cmd.DenyNetwork = args[1] == "offline"
	began := time.Now()
	for range n {
		if o := Run(context.Background(), cmd); o.Reason != result.Completed {
			fmt.Println(describe(o))
			os.Exit(1)
		}
	}
	fmt.Println(time.Since(began).Nanoseconds())
}

// relayHelper starts a copy of itself as often as its argument says, each ending at once after it has
// started the next: a process that is always gone when one looks.
func relayHelper(args []string) {
	n, _ := strconv.Atoi(args[0])
	if n == 0 {
		return
	}
	_, _ = syscall.ForkExec("/proc/self/exe", []string{"relay", strconv.Itoa(n - 1)}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
}

// fdsHelper lists its open descriptors.
func fdsHelper([]string) {
	for fd := range 256 {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil {
			// Go's own, for its poller, come and go; they are closed on exec.
			flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			if flags&unix.FD_CLOEXEC == 0 {
				fmt.Println(fd)
			}
		}
	}
}

// faultHelper makes a mistake of its own when it is hardened, and prints how it met it.
func faultHelper([]string) {
	if err := Harden(); err != nil {
		fmt.Println(err)
	}
	defer func() { fmt.Println(recover()) }()
	var nothing *supervision
	fmt.Println(nothing.Dir)
}

// asyncHelper has descriptors send its parent every signal but those that end or stop any process, or stop a container.
func asyncHelper([]string) {
	for s := 1; s <= 64; s++ {
		if slices.Contains([]int{int(unix.SIGKILL), int(unix.SIGSTOP), int(unix.SIGTERM)}, s) {
			continue
		}
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, set := range [][2]int{{unix.F_SETOWN, os.Getppid()}, {unix.F_SETSIG, s}, {unix.F_SETFL, unix.O_ASYNC}} {
			if _, err := unix.FcntlInt(uintptr(ends[0]), set[0], set[1]); err != nil {
				fmt.Println(err)
			}
		}
		_, _ = unix.Write(ends[1], []byte("x"))
		unix.Close(ends[0])
		unix.Close(ends[1])
	}
	fmt.Println("survived")
}

// spyHelper tries to get at its parent, and prints what worked.
func spyHelper([]string) {
	parent := strconv.Itoa(os.Getppid())
	for _, name := range []string{"environ", "maps", "mem", "auxv", "stack", "syscall", "io", "pagemap", "smaps"} {
		if data, err := readSome("/proc/" + parent + "/" + name); err == nil {
			fmt.Printf("read %s: %q\n", name, data)
		}
	}
	for _, name := range []string{"fd", "fdinfo", "map_files", "task/" + parent + "/fd"} {
		if entries, err := os.ReadDir("/proc/" + parent + "/" + name); err == nil && len(entries) > 0 {
			fmt.Printf("listed %s\n", name)
		}
	}
	for _, name := range []string{"exe", "cwd", "root", "fd/0", "ns/net"} {
		if target, err := os.Readlink("/proc/" + parent + "/" + name); err == nil {
			fmt.Printf("followed %s: %s\n", name, target)
		}
	}
	spyByCalls(os.Getppid())
	// Our own must not be hidden from us.
	if _, err := os.ReadFile("/proc/self/environ"); err != nil {
		fmt.Println("own environ:", err)
	}
}

func readSome(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, 64)
	n, err := f.Read(data)
	if err != nil {
		return nil, err
	}
	return data[:n], nil
}

func spyByCalls(parent int) {
	// Unlike attaching, which asks for the same right, this doesn't stop a process that lets us.
	if unix.PtraceSeize(parent) == nil {
		fmt.Println("seized")
	}
	buf := make([]byte, 8)
	local := []unix.Iovec{{Base: &buf[0], Len: 8}}
	remote := []unix.RemoteIovec{{Base: 0x400000, Len: 8}}
	if _, err := unix.ProcessVMReadv(parent, local, remote, 0); err == nil {
		fmt.Println("read memory")
	}
	if fd, err := unix.PidfdOpen(parent, 0); err == nil {
		if _, err := unix.PidfdGetfd(fd, 0, 0); err == nil {
			fmt.Println("took a descriptor")
		}
	}
}

// compile makes a program of C source, as to.
func compile(t testing.TB, to, source string, flags ...string) {
	t.Helper()
	needs(t, "gcc")
	file := write(t, t.TempDir(), "source.c", source, 0o644)
	if out, err := exec.Command("gcc", append(flags, "-w", "-o", to, file)...).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v: %s", err, out)
	}
}

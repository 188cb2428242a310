package sandbox

import (
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/runner/sandbox/sockets"
)

const testPath = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

// decider lets listed addresses through.
type decider struct {
	mu      sync.Mutex
	allowed map[netip.AddrPort]bool
	asked   []netip.AddrPort
	// all lets everything through that isn't in refused.
	all     bool
	refused map[netip.AddrPort]bool
}

func allow1(to ...netip.AddrPort) *decider {
	d := &decider{allowed: map[netip.AddrPort]bool{}}
	for _, a := range to {
		d.allowed[a] = true
	}
	return d
}

func (d *decider) Decide(to netip.AddrPort, p network.Protocol) network.Verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, to)
	if d.allowed[to] || d.all && !d.refused[to] || p == network.RouteLookup && to.Port() == 0 {
		return network.Verdict{Allowed: true}
	}
	return network.Verdict{Host: to.Addr().String(), Rule: "no rule lists it"}
}

// command is a program that is started behind the gate.
type command struct {
	network     *sockets.Network
	denyNetwork bool
	// rules are those of the call beside its connections.
	rules rules.Rules
	argv  []string
	env   []string
	files []*os.File
	// withoutLandlock leaves the connections to the gate alone.
	withoutLandlock bool
}

// running is a command that was started.
type running struct {
	*Process
	pid    int
	output *os.File
	t      testing.TB
}

// supportOnce is what this machine gives.
var supportOnce = sync.OnceValue(func() rules.Support {
	stage, err := NewStage()
	if err != nil {
		return rules.Support{}
	}
	defer stage.Discard()
	return Probe(stage)
})

func (c *command) start(t testing.TB) *running {
	t.Helper()
	c.rules.Connections = !c.denyNetwork
	if missing := support().Missing(&c.rules); missing != "" {
		t.Skip("this machine has no " + missing)
	}
	domain, err := Prepare(&c.rules, testPath, support())
	if err != nil {
		t.Fatal(err)
	}
	defer domain.Close()
	if c.withoutLandlock {
		domain.Close()
		if domain.ruleset, err = kernel.NewRuleSet(kernel.AccessRefer, 0, domain.way.Landlock); err != nil {
			t.Fatal(err)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	dir, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	files := []uintptr{null.Fd(), w.Fd(), w.Fd()}
	for _, f := range c.files {
		files = append(files, f.Fd())
	}
	p, pid, err := startCommand(&Start{
		Domain: domain, Program: c.argv[0], Argv: c.argv, Env: append([]string{"PATH=" + testPath, "HOME=/"}, c.env...),
		Directory: dir, Files: files, Network: c.network, DenyNetwork: c.denyNetwork, Wake: func() {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &running{Process: p, pid: pid, output: r, t: t}
}

// startCommand starts a command in a stage, or on a thread if its domain needs none.
func startCommand(c *Start) (p *Process, pid int, err error) {
	if c.Domain.NeedsStage() {
		stage, err := NewStage()
		if err != nil {
			return nil, 0, err
		}
		p, err = stage.Execute(c)
		return p, stage.PID, err
	}
	return c.Fork()
}

// wait returns what the command printed.
func (r *running) wait() (string, result.Outcome) {
	r.t.Helper()
	out, err := io.ReadAll(r.output)
	if err != nil {
		r.t.Fatal(err)
	}
	r.output.Close()
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(r.pid, &status, unix.WALL, nil); err != unix.EINTR {
			break
		}
	}
	o := result.Outcome{Reason: result.Completed}
	if status != 0 {
		o.Reason = result.NonZeroExit
	}
	began := time.Now()
	r.Stop()
	r.Report(&o)
	if time.Since(began) >= stopLimit {
		r.t.Error("the gate doesn't stop")
	}
	return string(out), o
}

func (c *command) run(t testing.TB) (string, result.Outcome) {
	t.Helper()
	return c.start(t).wait()
}

// python runs a program in Python with the network's addresses as arguments.
func python(t testing.TB, n *sockets.Network, source string, args ...string) (string, result.Outcome) {
	t.Helper()
	return (&command{network: n, argv: append([]string{programPath(t, "python3"), "-c", pythonPrelude + source}, args...)}).run(t)
}

const pythonPrelude = `
import ctypes, errno, os, select, signal, socket, struct, sys, threading, time
def code(f, *a):
    try: return f(*a)
    except OSError as e: return errno.errorcode.get(e.errno, str(e))
def port(i): return int(sys.argv[i])
libc = ctypes.CDLL(None, use_errno=True)
`

// programPath returns the path of a program that every user can start; it skips the test without it.
func programPath(t testing.TB, name string) string {
	t.Helper()
	for _, dir := range filepath.SplitList(testPath) {
		if path := filepath.Join(dir, name); unix.Access(path, unix.X_OK) == nil {
			return path
		}
	}
	t.Skip(name + " isn't there")
	return ""
}

// self runs a child of this test binary, which nobody else may be able to read.
func self(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// compile makes a C program.
func compile(t testing.TB, compiler, source string, flags ...string) string {
	t.Helper()
	path := filepath.Join(publicDir(t), "program")
	cmd := exec.Command(programPath(t, compiler), append(append([]string{"-w", "-x", "c", "-", "-o", path}, flags...), "-lpthread")...)
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func publicDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// server accepts connections, says hello to each, and counts them.
type server struct {
	net.Listener
	accepted atomic.Int64
}

func serve(t testing.TB, address string) *server {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip(err)
	}
	s := &server{Listener: l}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			done.Go(func() {
				defer c.Close()
				_, _ = io.WriteString(c, "hello\n")
				_, _ = io.Copy(c, c) // until the other side closes
			})
		}
	})
	t.Cleanup(func() { l.Close(); done.Wait() })
	return s
}

func (s *server) address() netip.AddrPort {
	return netip.MustParseAddrPort(s.Addr().String())
}

// port is the server's port as an argument.
func (s *server) port() string {
	_, port, _ := net.SplitHostPort(s.Addr().String())
	return port
}

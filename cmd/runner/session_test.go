package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// sessionOperator says to one runner what the test wants.
type sessionOperator struct {
	t        testing.TB
	identity *dispatch.Identity
	listener net.Listener
	conn     *tls.Conn
}

// startSessionRunner starts the first process of a session's pod, which waits for its session.
func startSessionRunner(t testing.TB, prefix ...string) (*sessionOperator, *process) {
	t.Helper()
	o := newSessionOperator(t)
	p := startRunnerBy(t, &operator{identity: o.identity, address: o.listener.Addr().String()}, prefix)
	return o, p
}

// newSessionOperator listens for one runner.
func newSessionOperator(t testing.TB) *sessionOperator {
	t.Helper()
	identity, err := dispatch.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	conf, err := identity.ServerTLS(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return &sessionOperator{t: t, identity: identity, listener: listener}
}

// accept takes the runner's next connection.
func (o *sessionOperator) accept() *wire.Hello {
	o.t.Helper()
	conn, err := o.listener.Accept()
	if err != nil {
		o.t.Fatal(err)
	}
	o.conn = conn.(*tls.Conn)
	o.t.Cleanup(func() { conn.Close() })
	m, err := o.read()
	if err != nil || m.Hello == nil {
		o.t.Fatalf("got %+v, %v; want a hello", m, err)
	}
	for s := m.Hello.Serving; s != nil && len(s.Calls) < s.Held; {
		held, err := o.read()
		if err != nil {
			o.t.Fatal(err)
		}
		if held.Held != nil {
			s.Calls = append(s.Calls, *held.Held)
		}
	}
	return m.Hello
}

func (o *sessionOperator) read() (*wire.Message, error) {
	size, err := wire.ReadHeader(o.conn, wire.MaxResult)
	if err != nil {
		return nil, err
	}
	return wire.ReadFromRunner(o.conn, size)
}

func (o *sessionOperator) send(m *wire.Message) {
	o.t.Helper()
	if err := wire.Write(o.conn, m); err != nil {
		o.t.Fatal(err)
	}
}

// result waits for the result of a call, and keeps the connection alive meanwhile. The call has started before.
func (o *sessionOperator) result(uid string) *wire.Result {
	o.t.Helper()
	for {
		m, err := o.read()
		switch {
		case err != nil:
			o.t.Fatal(err)
		case m.Ping != nil:
			o.send(&wire.Message{Pong: &wire.Ping{}})
		case m.Result != nil && m.Result.CallUID == uid:
			if err := m.Result.Validate(); err != nil {
				o.t.Error(err)
			}
			return m.Result
		}
	}
}

// begin returns what the node gives.
func (o *sessionOperator) begin(concurrent int) *rules.Support {
	o.t.Helper()
	h := o.accept()
	if h.Serving != nil || h.Version != wire.Version {
		o.t.Errorf("the first hello says %+v", h)
	}
	o.send(&wire.Message{Begin: theSession(concurrent)})
	return h.Support
}

// theSession is what runners of sessions begin with.
func theSession(concurrent int) *wire.Begin {
	owner := wire.Owner{Kind: wire.KindSession, UID: "s1", Name: "session", Incarnation: 1}
	return &wire.Begin{Owner: owner, MaxCalls: wire.MaxSessionCalls, MaxConcurrentCalls: concurrent}
}

// call is an assignment of a session.
func (p *process) call(uid, script string) *wire.Message {
	a := p.assignment(script)
	a.CallUID, a.CallName, a.Decision = uid, "call-"+uid, "sealed-"+uid
	return &wire.Message{Assign: a}
}

func acked(uid string) *wire.Message { return &wire.Message{Ack: &wire.Ack{CallUID: uid}} }

// fifo is a path through which a script says a line.
func (p *process) fifo(name string) string {
	p.t.Helper()
	path := filepath.Join(p.Dir, name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

func (p *process) read(fifo string) string {
	p.t.Helper()
	said, err := os.ReadFile(fifo)
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(said))
}

func stdout(r *wire.Result) string { return string(r.Outcome.Stdout.Head) }

func TestARunnerTakesTheCallsOfASession(t *testing.T) {
	o, p := startSessionRunner(t)
	o.begin(2)
	ready := p.fifo("ready")
	// A server in the background, beside which others come and go.
	server := p.call("server", "setsid sleep 600 & echo $! >"+ready+"; wait")
	server.Assign.Background, server.Assign.TimeoutMilliseconds = true, 0
	o.send(server)
	pid := p.read(ready)
	for i := range 5 {
		uid := fmt.Sprintf("c%d", i)
		m := p.call(uid, `echo "$NAME" >>file; cat file | wc -l; pwd; env | grep -c -e TOOLCALL -e `+p.token+`; sleep 600 & exit 3`)
		m.Assign.Environment.Layers = []envresolve.Layer{{Source: envresolve.SourceCall, Vars: []envresolve.Var{{Name: "NAME", Value: uid}}}}
		o.send(m)
		r := o.result(uid)
		if want := fmt.Sprintf("%d\n%s\n0\n", i+1, p.Dir); stdout(r) != want || *r.Outcome.ExitCode != 3 || r.Decision != "sealed-"+uid {
			t.Errorf("got %q, %+v; want %q", stdout(r), r.Outcome, want)
		}
		o.send(acked(uid))
	}
	if _, err := os.Stat("/proc/" + pid); err != nil {
		t.Errorf("the server is gone: %v", err)
	}
	o.send(&wire.Message{Stop: &wire.Stop{CallUID: "server", Reason: result.CancelRequested}})
	if r := o.result("server"); r.Outcome.Reason != result.CancelRequested || !r.Outcome.Started {
		t.Errorf("got %+v", r.Outcome)
	}
	if _, err := os.Stat("/proc/" + pid); err == nil {
		t.Error("the server is left")
	}
	o.send(acked("server"))
	o.send(&wire.Message{End: &wire.End{Reason: "EndRequested"}})
	if code := p.exit(); code != 0 {
		t.Errorf("the runner exited with %d: %s", code, p.stderr.String())
	}
}

func TestCallsOfASessionGoOnWithoutAnOperator(t *testing.T) {
	o, p := startSessionRunner(t)
	o.begin(2)
	ready, finish, second := p.fifo("ready"), p.fifo("finish"), p.fifo("second")
	script := "echo x >>begun; echo up >" + ready + "; cat " + finish + "; echo done"
	o.send(p.call("c1", script))
	p.read(ready)
	o.conn.Close()
	h := o.accept()
	want := []wire.Held{{UID: "c1", Name: "call-c1", State: wire.Running, Decision: "sealed-c1"}}
	if s := h.Serving; s == nil || s.Owner != theSession(2).Owner || s.Taken != 1 || !slices.Equal(s.Calls, want) {
		t.Fatalf("the hello says %+v", h.Serving)
	}
	o.send(p.call("c1", script))
	o.send(p.call("c2", "echo up >"+second+"; exec sleep 600"))
	p.read(second)
	o.conn.Close()
	if err := os.WriteFile(finish, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h = o.accept()
	if h.Serving.Taken != 2 || len(h.Serving.Calls) != 2 {
		t.Errorf("the hello says %+v", h.Serving)
	}
	first := o.result("c1")
	o.conn.Close()
	o.accept()
	again := o.result("c1")
	if stdout(first) != "done\n" || stdout(again) != "done\n" || first.Outcome.DurationMS != again.Outcome.DurationMS {
		t.Errorf("got %+v, then %+v", first.Outcome, again.Outcome)
	}
	if begun, err := os.ReadFile(filepath.Join(p.Dir, "begun")); err != nil || string(begun) != "x\n" {
		t.Errorf("the command began as %q, %v", begun, err)
	}
	o.send(acked("c1"))
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := o.result("c2"); r.Outcome.Reason != result.PodLost {
		t.Errorf("got %+v", r.Outcome)
	}
	o.send(acked("c2"))
	if code := p.exit(); code != 0 {
		t.Errorf("the runner exited with %d: %s", code, p.stderr.String())
	}
}

func TestACallOfASessionCantReachAnother(t *testing.T) {
	var prefix []string
	if os.Getuid() == 0 {
		if _, err := exec.LookPath("setpriv"); err != nil {
			t.Skip("setpriv isn't installed")
		}
		// No capability lets it look into other processes, as in a pod.
		prefix = []string{"setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"}
	}
	o, p := startSessionRunner(t, prefix...)
	if support := o.begin(2); support.LandlockABI < rules.ABIScopes {
		t.Skip("signals can't be held here")
	}
	ready := p.fifo("ready")
	o.send(p.call("victim", "echo $$ $PPID >"+ready+"; exec sleep 600"))
	victims := append(strings.Fields(p.read(ready)), strconv.Itoa(p.Process.Pid))
	script := "cat /proc/self/environ >/dev/null && kill -0 $$ && echo own; kill -0 $PPID && echo its shim;"
	for _, pid := range victims {
		script += fmt.Sprintf(" kill -0 %[1]s && echo signalled %[1]s; cat /proc/%[1]s/environ && echo read %[1]s; cat </proc/%[1]s/mem && echo opened %[1]s;", pid)
	}
	o.send(p.call("c1", script+" echo x >file; cat file"))
	r := o.result("c1")
	if i := r.Outcome.Isolation; i == nil || !i.Signals || stdout(r) != "own\nx\n" {
		t.Errorf("got %q, %q", stdout(r), r.Outcome.Stderr.Head)
	}
	o.send(&wire.Message{End: &wire.End{Reason: "EndRequested"}})
	if r := o.result("victim"); r.Outcome.Reason != result.CancelRequested {
		t.Errorf("got %+v", r.Outcome)
	}
	for _, uid := range []string{"c1", "victim"} {
		o.send(acked(uid))
	}
	if code := p.exit(); code != 0 {
		t.Errorf("the runner exited with %d: %s", code, p.stderr.String())
	}
}

// BenchmarkCallOfASession is the assignment to the result of a command that does nothing, one after the other and eight at
// a time, and how much memory the
// runner takes.
func BenchmarkCallOfASession(b *testing.B) {
	for _, concurrent := range []int{1, 8} {
		b.Run(fmt.Sprint(concurrent), func(b *testing.B) {
			o, p := startSessionRunner(b)
			o.begin(concurrent)
			next := 0
			assign := func() {
				m := p.call(fmt.Sprintf("00000000-0000-4000-8000-%012d", next), "")
				m.Assign.Argv = []string{"true"}
				next++
				o.send(m)
			}
			ended := func() {
				for {
					m, err := o.read()
					switch {
					case err != nil:
						b.Fatal(err)
					case m.Ping != nil:
						o.send(&wire.Message{Pong: &wire.Ping{}})
					case m.Result != nil:
						if m.Result.Outcome.Reason != result.Completed {
							b.Fatalf("got %+v", m.Result.Outcome)
						}
						o.send(acked(m.Result.CallUID))
						return
					}
				}
			}
			run := func(n int) {
				for i := range n + concurrent {
					if i >= concurrent {
						ended()
					}
					if i < n {
						assign()
					}
				}
			}
			run(100)
			before := proc.Memory(p.Process.Pid)
			b.ResetTimer()
			run(b.N)
			b.StopTimer()
			used := proc.Memory(p.Process.Pid)
			b.ReportMetric(float64(used-before)/(1<<10), "KiB-grown")
			b.ReportMetric(float64(used)/(1<<20), "MiB-runner")
			b.ReportMetric(float64(proc.MemoryBelow([]int{p.Process.Pid})[p.Process.Pid])/(1<<20), "MiB-shims")
			o.send(&wire.Message{End: &wire.End{Reason: "EndRequested"}})
			p.exit()
		})
	}
}

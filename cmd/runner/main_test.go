package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

// asRunner holds the path of the termination message; a process that has the variable is the runner.
const asRunner = "TEST_TERMINATION_MESSAGE"

func TestMain(m *testing.M) {
	if path := os.Getenv(asRunner); path != "" {
		if err := run(os.Getenv, path); err != nil {
			fmt.Fprintln(os.Stderr, "runner:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("toolcall.dev/operator/internal/runner/sandbox/kernel.worker.serve"))
}

// operator is a real one, as far as runners see.
type operator struct {
	t        *testing.T
	identity *dispatch.Identity
	address  string
	hub      *dispatch.Hub
	events   chan *dispatch.Runner
	// stop ends it; another may listen at the same address then.
	stop func()
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	identity, err := dispatch.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	o := &operator{t: t, identity: identity, address: "127.0.0.1:0"}
	o.start()
	return o
}

func (o *operator) start() {
	o.t.Helper()
	listener, err := net.Listen("tcp", o.address)
	if err != nil {
		o.t.Fatal(err)
	}
	o.address = listener.Addr().String()
	events := make(chan *dispatch.Runner, 64)
	o.events = events
	o.hub = dispatch.NewHub(func(s *dispatch.Runner, _ dispatch.News) { events <- s })
	server := &dispatch.Server{Hub: o.hub, Identity: o.identity, Log: logr.Discard()}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ctx, listener) })
	o.stop = func() { cancel(); serving.Wait() }
	o.t.Cleanup(o.stop)
}

// process is a runner in a process of its own.
type process struct {
	*exec.Cmd
	t           testing.TB
	token       string
	termination string
	stderr      bytes.Buffer
}

// startRunner starts the first process of a pod of the Job.
func startRunner(t testing.TB, o *operator, changes ...string) *process {
	t.Helper()
	return startRunnerBy(t, o, nil, changes...)
}

// startRunnerBy lets a command start the runner.
func startRunnerBy(t testing.TB, o *operator, prefix []string, changes ...string) *process {
	t.Helper()
	p := newProcess(t, o, t.TempDir(), append(slices.Clone(prefix), os.Args[0]), changes...)
	p.start()
	return p
}

// newProcess is a runner that isn't started yet.
func newProcess(t testing.TB, o *operator, dir string, argv []string, changes ...string) *process {
	t.Helper()
	p := &process{t: t, token: o.identity.Token("ns", "job", "job-uid"), termination: filepath.Join(dir, "termination-log")}
	p.Cmd = exec.Command(argv[0], argv[1:]...)
	p.Dir = dir
	p.Env = append([]string{
		"PATH=/usr/bin:/bin", asRunner + "=" + p.termination,
		wire.EnvEndpoints + "=" + o.address, wire.EnvCA + "=" + o.identity.CA(), wire.EnvToken + "=" + p.token,
		wire.EnvNamespace + "=ns", wire.EnvCall + "=call", wire.EnvJob + "=job", wire.EnvJobUID + "=job-uid",
		wire.EnvPod + "=pod", wire.EnvPodUID + "=pod-uid", wire.EnvNode + "=node",
	}, changes...)
	p.Stderr = &p.stderr
	return p
}

func (p *process) start() {
	p.t.Helper()
	if err := p.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = p.Process.Kill() })
}

// exit waits for the process's end.
func (p *process) exit() int {
	p.t.Helper()
	_ = p.Wait()
	return p.ProcessState.ExitCode()
}

func (p *process) assignment(script string) *wire.Assignment {
	return &wire.Assignment{
		CallUID: "c1", CallName: "call", Argv: []string{"sh", "-c", script}, Bounds: spec.Bounds{TimeoutMilliseconds: 60_000, MaxBytesPerStream: 1 << 10},
		Environment: envresolve.Plan{AllowedPaths: []string{p.Dir}},
	}
}

// assign makes the runner that of the call c1, and hands that over.
func assign(t *testing.T, runner *dispatch.Runner, a *wire.Assignment) {
	t.Helper()
	if err := runner.Begin(wire.BeginCall("c1", "call")); err != nil {
		t.Fatal(err)
	}
	if err := runner.Assign("c1", a); err != nil {
		t.Fatal(err)
	}
}

// result waits for that of a call of the runner that is connected.
func (o *operator) result(uid string) *wire.Result {
	o.t.Helper()
	for runner := range o.events {
		if r := runner.ResultOf(uid); r != nil {
			if err := r.Validate(); err != nil {
				o.t.Error(err)
			}
			return r
		}
	}
	return nil
}

// ack acknowledges the result of the call c1, and waits for the runner's end.
func (p *process) ack(runner *dispatch.Runner) {
	p.t.Helper()
	if err := runner.Ack("c1"); err != nil {
		p.t.Fatal(err)
	}
	if code := p.exit(); code != 0 {
		p.t.Errorf("the runner exited with %d: %s", code, p.stderr.String())
	}
}

// saved is the outcome in the termination message.
func (p *process) saved() *result.Outcome {
	p.t.Helper()
	raw, err := os.ReadFile(p.termination)
	if err != nil {
		p.t.Fatal(err)
	}
	var message wire.TerminationMessage
	if err := json.Unmarshal(raw, &message); err != nil || !message.Verify(p.token, "c1") {
		p.t.Fatalf("the termination message is %s, %v", raw, err)
	}
	if len(raw) > result.MaxTermination {
		p.t.Errorf("the termination message has %d bytes", len(raw))
	}
	outcome, err := result.DecodeTermination(message.Outcome)
	if err != nil {
		p.t.Fatal(err)
	}
	return outcome
}

func TestARunnerTakesOneCallToItsEnd(t *testing.T) {
	o := newOperator(t)
	p := startRunner(t, o)
	runner := <-o.events
	if s := runner.Hello().Support; s == nil || !s.ReadMemory || s.LandlockABI == 0 {
		t.Errorf("the hello says that the node gives %+v", s)
	}
	assign(t, runner, p.assignment(`echo hello; env | grep -c -e TOOLCALL -e `+p.token+`; exit 3`))
	r := o.result("c1")
	if string(r.Outcome.Stdout.Head) != "hello\n0\n" || *r.Outcome.ExitCode != 3 {
		t.Fatalf("got %+v", r)
	}
	p.ack(runner)
	if saved := p.saved(); string(saved.Stdout.Head) != "hello\n0\n" || saved.WorkingDir != r.Environment.WorkingDir || saved.Reason != result.NonZeroExit {
		t.Errorf("saved %+v", saved)
	}
}

func TestAnOperatorThatIsAwayCostsNoResult(t *testing.T) {
	o := newOperator(t)
	p := startRunner(t, o)
	begun := filepath.Join(p.Dir, "begun")
	assign(t, <-o.events, p.assignment("echo x >>"+begun+"; echo done"))
	r := o.result("c1")
	o.stop()
	o.start()
	again := <-o.events
	if owner, _ := again.Owner(); owner != wire.BeginCall("c1", "call").Owner {
		t.Errorf("the runner says that it has %+v", owner)
	}
	if held, _ := again.HeldCall("c1"); held.State != dispatch.Ended {
		t.Errorf("the runner says that its call is %+v", held)
	}
	second := again.ResultOf("c1")
	if second == nil {
		second = o.result("c1")
	}
	if string(second.Outcome.Stdout.Head) != "done\n" || second.Outcome.DurationMS != r.Outcome.DurationMS {
		t.Fatalf("the result was %+v and is %+v", r, second)
	}
	p.ack(again)
	if raw, err := os.ReadFile(begun); err != nil || string(raw) != "x\n" {
		t.Errorf("the command began as %q, %v", raw, err)
	}
}

func TestTheEndOfThePodStopsTheCommandAndIsReported(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT} {
		o := newOperator(t)
		p := startRunner(t, o)
		ready := p.fifo("ready")
		runner := <-o.events
		assign(t, runner, p.assignment("echo >"+ready+"; exec sleep 600"))
		p.read(ready)
		if err := p.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if r := o.result("c1"); r.Outcome.Reason != result.PodLost || !r.Outcome.Started {
			t.Errorf("%s: got %+v", signal, r)
		}
		p.ack(runner)
		if p.saved().Reason != result.PodLost {
			t.Errorf("%s: saved %s", signal, p.saved().Reason)
		}
	}
}

func TestTheEndOfThePodBeforeTheAssignmentStartsNothing(t *testing.T) {
	o := newOperator(t)
	p := startRunner(t, o)
	runner := <-o.events
	for runner.IsWaiting() {
		if err := runner.Begin(wire.BeginCall("c1", "call")); err != nil {
			t.Fatal(err)
		}
		// Its next hello says whether it has heard that.
		o.stop()
		o.start()
		runner = <-o.events
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(); code != 0 {
		t.Errorf("the runner exited with %d: %s", code, p.stderr.String())
	}
	if raw, err := os.ReadFile(p.termination); !os.IsNotExist(err) {
		t.Errorf("the copy of a result is %q, %v", raw, err)
	}
}

func TestARunnerThatIsNotWantedEnds(t *testing.T) {
	begin := func(s *dispatch.Runner) { _ = s.Begin(wire.BeginCall("c1", "call")) }
	for name, end := range map[string]func(*process, *dispatch.Runner){
		"refused":                   func(_ *process, s *dispatch.Runner) { s.Refuse("the pool is too large") },
		"its pod ends":              func(p *process, _ *dispatch.Runner) { _ = p.Process.Signal(syscall.SIGTERM) },
		"refused when it has begun": func(_ *process, s *dispatch.Runner) { begin(s); s.Refuse("gone") },
		"refused with its call": func(p *process, s *dispatch.Runner) {
			begin(s)
			_ = s.Assign("c1", p.assignment("exec sleep 600"))
			s.Refuse("gone")
		},
	} {
		o := newOperator(t)
		p := startRunner(t, o)
		end(p, <-o.events)
		over := make(chan struct{})
		go func() {
			// A refusal can be lost with its connection: then the runner dials in again.
			for {
				select {
				case s := <-o.events:
					s.Refuse("gone")
				case <-over:
					return
				}
			}
		}()
		code := p.exit()
		close(over)
		if code != 1 || p.stderr.Len() == 0 {
			t.Errorf("%s: exited with %d: %s", name, code, p.stderr.String())
		}
	}
}

// The kubelet takes the termination message for what the container says of its end.
func TestARunnerThatIsRefusedBeforeItBeginsLeavesWhy(t *testing.T) {
	refusal := &wire.Message{Refuse: &wire.Refusal{Reason: "another version"}}
	o, p := startSessionRunner(t)
	o.accept()
	o.send(refusal)
	code := p.exit()
	if raw, err := os.ReadFile(p.termination); code != 1 || string(raw) != "refused by the operator: another version" {
		t.Errorf("exited with %d, and left %q, %v", code, raw, err)
	}

	// A result that the operator refuses is still there as a copy.
	o, p = startSessionRunner(t)
	o.accept()
	o.send(&wire.Message{Begin: wire.BeginCall("c1", "call")})
	o.send(&wire.Message{Assign: p.assignment("exit 3")})
	o.result("c1")
	refusal.Refuse.Final = true
	o.send(refusal)
	if code := p.exit(); code != 1 || p.saved().Reason != result.NonZeroExit {
		t.Errorf("exited with %d, and left %+v", code, p.saved())
	}
}

func TestARunnerSaysWhatItIsNotTold(t *testing.T) {
	o := newOperator(t)
	for _, name := range []string{wire.EnvToken, wire.EnvEndpoints, wire.EnvCA} {
		p := startRunner(t, o, name+"=")
		if code := p.exit(); code != 1 || !strings.Contains(p.stderr.String(), name) {
			t.Errorf("without %s: exited with %d: %s", name, code, p.stderr.String())
		}
	}
}

package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-logr/logr"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/test/bench/measure"
	"toolcall.dev/operator/test/bench/standalone"
)

const (
	// startsInTurn is how often a turn starts a runner.
	startsInTurn = 10
	// helloTimeout is how long a runner may take to say hello.
	helloTimeout = 10 * time.Second
)

// listener is for runners what the operator is.
type listener struct {
	address  string
	identity *dispatch.Identity
	// changes tells when a runner comes or goes.
	changes chan time.Time
	// started are the runners until now; each has a Job and a pod of its own.
	started int
}

// listen serves runners until the context ends.
func listen(ctx context.Context) (*listener, error) {
	identity, err := dispatch.NewIdentity(time.Now())
	if err != nil {
		return nil, err
	}
	open, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &listener{address: open.Addr().String(), identity: identity, changes: make(chan time.Time, 2)}
	hub := dispatch.NewHub(func(*dispatch.Runner, dispatch.News) { l.changes <- time.Now() })
	server := &dispatch.Server{Hub: hub, Identity: identity, Log: logr.Discard()}
	go func() { _ = server.Serve(ctx, open) }()
	return l, nil
}

// measureRunners measures the start of a runner's program until the operator could give it a call, and its memory then.
func (b *bench) measureRunners(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := listen(ctx)
	if err != nil {
		return err
	}
	const what = "start of a runner until its hello"
	resident := map[build][]float64{}
	var scenarios []*measure.Scenario
	for _, o := range b.builds() {
		var runner *exec.Cmd
		scenarios = append(scenarios, &measure.Scenario{
			Name: o.name(what), Against: b.against(o, what), Each: startsInTurn,
			Operate: func(ctx context.Context, _ int) (err error) {
				runner, err = l.start(ctx, filepath.Join(o.folder, "bin/runner"))
				return err
			},
			Clear: func(context.Context) error {
				bytes, err := standalone.Resident(runner.Process.Pid)
				resident[o] = append(resident[o], float64(bytes)/standalone.Mebi)
				return errors.Join(err, l.end(runner))
			},
		})
	}
	if err := b.report.InTurns(ctx, b.part, rounds, scenarios...); err != nil {
		return err
	}
	for _, o := range b.builds() {
		b.report.Add(b.part, o.name("runner that waits"), "MiB resident", resident[o], b.against(o, "runner that waits")...)
	}
	return nil
}

// start starts a runner, and waits for its hello.
func (l *listener) start(ctx context.Context, program string) (*exec.Cmd, error) {
	l.started++
	job := "job-" + strconv.Itoa(l.started)
	runner := exec.Command(program)
	runner.Env = []string{
		wire.EnvEndpoints + "=" + l.address, wire.EnvCA + "=" + l.identity.CA(),
		wire.EnvToken + "=" + l.identity.Token("ns", job, job+"-uid"), wire.EnvNamespace + "=ns", wire.EnvCall + "=call",
		wire.EnvJob + "=" + job, wire.EnvJobUID + "=" + job + "-uid", wire.EnvPod + "=pod", wire.EnvPodUID + "=" + job, wire.EnvNode + "=node",
	}
	if err := runner.Start(); err != nil {
		return nil, err
	}
	select {
	case <-l.changes:
		return runner, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), l.kill(runner))
	case <-time.After(helloTimeout):
		return nil, errors.Join(fmt.Errorf("the runner said no hello within %s", helloTimeout), l.kill(runner))
	}
}

// end ends a runner that waits for a call, and waits until it is known to be gone.
func (l *listener) end(runner *exec.Cmd) error {
	err := l.kill(runner)
	<-l.changes
	return err
}

func (l *listener) kill(runner *exec.Cmd) error {
	err := runner.Process.Kill()
	_ = runner.Wait()
	return err
}

// Command runner is the first process of every tool pod: it connects to the operator, takes one call, or the calls of a
// session, several at a time, runs them and reports how they ended. It takes no flags; the operator configures it by
// variables. With the arguments "install PATH" it copies itself to that path instead.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/supervisor"
)

// reconnectTimeout is how long a waiting pod outlives the operator. Nothing else ends it when the operator is gone for
// good, and an outage that ends must not cost the pool.
const reconnectTimeout = 15 * time.Minute

func main() {
	if err := start(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(1)
	}
}

func start(args []string) error {
	switch {
	case len(args) == 0:
		return run(os.Getenv, wire.TerminationMessagePath)
	case len(args) == 2 && args[0] == installCommand:
		return install("/proc/self/exe", args[1])
	}
	return fmt.Errorf("unknown arguments %q: give none, or %s and a path", args, installCommand)
}

func run(getenv func(string) string, terminationMessagePath string) error {
	if err := runner.Harden(); err != nil {
		return fmt.Errorf("hide from the command: %w", err)
	}
	config, err := dial.FromEnv(getenv)
	if err != nil {
		return err
	}
	config.Hello.Support = new(runner.Prepare())
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the image's working directory: %w", err)
	}
	// An image can name another signal than SIGTERM to be stopped with.
	signalled, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	defer stop()
	terminate, end := context.WithCancelCause(signalled)
	defer end(nil)
	outputs, isBegun := supervisor.NewOutputs(), false
	executor := &supervisor.Executor{
		Environ: os.Environ(), WorkingDir: dir, Stdout: runner.NewLog(os.Stdout), Stderr: runner.NewLog(os.Stderr), Outputs: outputs,
		Inputs: supervisor.NewInputs(), Hosts: runner.ReadHosts(), Pod: supervisor.ReadPodNetwork(),
	}
	s := &supervisor.Supervisor{
		Files:   executor,
		Outputs: outputs,
		Dial: func(ctx context.Context, serving *wire.Serving) (supervisor.Conn, error) {
			return config.Dial(ctx, serving)
		},
		Begin: func(b *wire.Begin) supervisor.ExecuteFunc {
			isBegun = true
			if b.IsCall() {
				return executor.Execute
			}
			return beginSession(*executor, b, *config.Hello.Support, end)
		},
		SaveCopy: func(r *wire.Result) {
			// Nothing can be done when it can't be written: the result is still sent.
			_ = os.WriteFile(terminationMessagePath, terminationMessage(config.Hello.Token, r), 0o600)
		},
		Log: func(line string) { fmt.Fprintln(os.Stderr, "runner:", line) },
	}
	if config.Hello.Pool != "" {
		s.ReconnectTimeout = reconnectTimeout
	}
	err = s.Run(context.Background(), terminate)
	if !isBegun && errors.Is(err, supervisor.ErrRefused) {
		// The operator shows it as the reason for the pod's end. Later, the copy of a result may be there.
		_ = os.WriteFile(terminationMessagePath, []byte(err.Error()), 0o600)
	}
	return err
}

// terminationMessage is a copy of the result for the case that the pod ends before the operator has the result itself.
func terminationMessage(token string, r *wire.Result) []byte {
	outcome := r.Outcome
	outcome.WorkingDir = r.Environment.WorkingDir
	short := result.EncodeTermination(&outcome, result.MaxTermination-wire.TerminationMessageOverhead)
	return wire.NewTerminationMessage(token, r.CallUID, short).Encode()
}

// Command runner is the first process of every tool pod: it connects to the operator, takes one call, runs
// it and reports how it ended. It takes no flags; the operator tells it by variables where it belongs.
package main

import (
	"context"
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

// patience is how long a waiting pod outlives the operator: nothing else ends it when that is gone for good, and a pool
// is not to be thrown away for an outage that ends.
const patience = 15 * time.Minute

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(1)
	}
}

func run() error {
	if err := runner.Harden(); err != nil {
		return fmt.Errorf("hide from the command: %w", err)
	}
	config, err := dial.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the image's working directory: %w", err)
	}
	executor := &supervisor.Executor{
		Environ: os.Environ(), WorkingDir: dir, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	s := &supervisor.Supervisor{
		Dial: func(ctx context.Context, call dial.Call) (supervisor.Conn, error) {
			return config.Dial(ctx, call)
		},
		Execute: executor.Execute,
		Leave:   func(r *wire.Result) { leave(config.Hello.Token, r) },
		Log:     func(line string) { fmt.Fprintln(os.Stderr, "runner:", line) },
	}
	if config.Hello.Pool != "" {
		s.Patience = patience
	}
	// An image can name another signal than SIGTERM to be stopped with.
	terminate, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	defer stop()
	return s.Run(context.Background(), terminate)
}

// leave writes a copy of the result into the container's termination message, for the case that the pod ends
// before the operator has the result itself. There is nothing to do when it can't be written.
func leave(token string, r *wire.Result) {
	outcome := r.Outcome
	outcome.WorkingDir = r.Environment.WorkingDir
	short := result.EncodeTerminationLimit(&outcome, result.MaxTermination-wire.TerminationMessageOverhead)
	words := wire.NewTerminationMessage(token, r.CallUID, short)
	_ = os.WriteFile(wire.TerminationMessagePath, words.Encode(), 0o600)
}

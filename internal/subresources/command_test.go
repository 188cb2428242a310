package subresources_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/spec"
)

// asCommand in the environment has the test's program run one command: the runner ends all other children of its process, and the
// API server is one of the tests'.
const asCommand = "TOOLCALL_TEST_AS_COMMAND"

// command is what of a runner's command the tests need.
type command struct {
	Argv, Env         []string
	Dir               string
	MaxBytesPerStream int
}

// runApart runs a command in a process of its own.
func runApart(ctx context.Context, c runner.Command, started func()) result.Outcome {
	line, err := json.Marshal(command{Argv: c.Argv, Env: c.Env, Dir: c.Dir, MaxBytesPerStream: c.MaxBytesPerStream})
	if err != nil {
		panic(err)
	}
	self := exec.CommandContext(ctx, "/proc/self/exe")
	self.Env = append(os.Environ(), asCommand+"="+string(line))
	if self.Stdin = bytes.NewReader(c.Stdin); c.Input != nil {
		self.Stdin = c.Input
	}
	self.Cancel = func() error { return self.Process.Signal(syscall.SIGTERM) }
	out, err := self.StdoutPipe()
	if err == nil {
		err = self.Start()
	}
	if err != nil {
		panic(err)
	}
	said := json.NewDecoder(out)
	var at time.Time
	var o result.Outcome
	if err = said.Decode(&at); err == nil {
		started()
		err = said.Decode(&o)
	}
	if waitErr := self.Wait(); err != nil && ctx.Err() == nil {
		panic(errors.Join(err, waitErr))
	} else if err != nil {
		return result.Outcome{Reason: result.CancelRequested, Message: "It was not started."}
	}
	return o
}

// runCommand is what the process of runApart does.
func runCommand(line string) error {
	var c command
	if err := json.Unmarshal([]byte(line), &c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	said := json.NewEncoder(os.Stdout)
	return said.Encode(runner.Run(ctx, runner.Command{
		Argv: c.Argv, Env: c.Env, Dir: c.Dir, Bounds: spec.Bounds{MaxBytesPerStream: c.MaxBytesPerStream}, Input: os.Stdin,
		OnStreams: func(kept.Output, kept.Output) { _ = said.Encode(time.Now()) },
	}))
}

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// stopPatience is how long a stage has to end after SIGTERM.
const stopPatience = 15 * time.Second

// runStage runs the command and records what came of it.
func runStage(o *options, out io.Writer) error {
	log, err := os.Create(filepath.Join(o.logs, o.stage+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(out, "=== %s\n", o.stage)
	started := time.Now()
	totals, err := execute(o, out, log)
	result := outcome{Stage: o.stage, Totals: totals, Seconds: time.Since(started).Seconds()}
	if err != nil && totals.Failed == 0 {
		// Whatever it was: something that should have worked did not.
		result.Failed++
		fmt.Fprintf(out, "%s: %v\n", o.stage, err)
	}
	fmt.Fprintf(out, "=== %s: %s, %.1f s\n", o.stage, result.verdict(), result.Seconds)
	if result.Failed > 0 {
		fmt.Fprintf(out, "    its log: %s\n", log.Name())
	}
	if err := result.record(o.logs); err != nil {
		return err
	}
	if result.Failed > 0 {
		return errFailed
	}
	return nil
}

func execute(o *options, out, log io.Writer) (Totals, error) {
	if !o.tests {
		both := io.MultiWriter(out, log)
		return Totals{}, command(o.command, both, both)
	}
	reader, writer := io.Pipe()
	counted := make(chan Totals)
	go func() {
		c := newCounter(out)
		c.read(io.TeeReader(reader, log))
		counted <- c.totals()
	}()
	err := command(o.command, writer, io.MultiWriter(out, log))
	writer.Close()
	return <-counted, err
}

// command runs in a process group of its own, so that a signal to us ends all that it started.
func command(args []string, stdout, stderr io.Writer) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// What a stage leaves in the background must not keep us.
	cmd.WaitDelay = 5 * time.Second
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if errors.Is(err, exec.ErrWaitDelay) {
			return nil
		}
		return err
	case got := <-signals:
		stop(cmd.Process.Pid, done)
		return fmt.Errorf("stopped by signal: %s", got)
	}
}

// stop ends the whole group.
func stop(group int, done <-chan error) {
	_ = syscall.Kill(-group, syscall.SIGTERM)
	select {
	case <-done:
	case <-time.After(stopPatience):
	}
	_ = syscall.Kill(-group, syscall.SIGKILL)
}

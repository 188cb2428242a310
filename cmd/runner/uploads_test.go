package main

import (
	"bytes"
	"os"
	"syscall"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/spec"
)

// However a pod ends, nothing of an upload stays on its volume: the file had no name.
func TestTheEndOfThePodLeavesNothingOfAnUpload(t *testing.T) {
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		o, p := startSessionRunner(t)
		o.begin(1)
		dir := t.TempDir()
		plan := p.assignment("true").Environment
		plan.WorkingDir, plan.AllowedPaths = dir, []string{dir}
		o.send(&wire.Message{Transfer: &wire.Transfer{
			ID: 1, Kind: wire.TransferWrite, Path: dir + "/up", Rules: spec.FileRules{WritePaths: []string{dir}}, Environment: plan,
		}})
		for states := 0; states < 2; {
			m, err := o.read()
			switch {
			case err != nil:
				t.Fatal(err)
			case m.Ping != nil:
				o.send(&wire.Message{Pong: &wire.Ping{}})
			case m.State != nil && m.State.Ended:
				t.Fatalf("%+v", m.State)
			case m.State != nil:
				if states++; states == 1 {
					part := bytes.Repeat([]byte("x"), wire.MaxPart)
					o.send(&wire.Message{Part: &wire.Part{ID: 1, Bytes: len(part), Payload: part}})
				}
			}
		}
		if err := p.Process.Signal(how); err != nil {
			t.Fatal(err)
		}
		read := make(chan struct{})
		go func() {
			defer close(read)
			for {
				if _, err := o.read(); err != nil {
					return
				}
			}
		}()
		_ = p.exit()
		<-read
		if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
			t.Errorf("%v: %v are left, %v", how, list, err)
		}
	}
}

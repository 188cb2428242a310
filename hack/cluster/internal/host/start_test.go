package host

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// With `flock FILE make cluster-up` the node would hold the lock until it is taken down.
func TestTheNodeDoesNotInheritTheCallersFiles(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may make the node's namespaces")
	}
	dir := t.TempDir()
	held, err := syscall.Open(filepath.Join(dir, "held"), syscall.O_CREAT|syscall.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(held)
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nreadlink /proc/self/fd/* 2>/dev/null\necho looked\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	gate, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	log := filepath.Join(dir, "log")
	cmd, err := launch(program, "", log, gate)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	said, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(said), "looked") || !strings.Contains(string(said), log) || strings.Contains(string(said), "held") {
		t.Errorf("the node has open:\n%s", said)
	}
}

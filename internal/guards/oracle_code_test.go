package guards

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

// codeOracle runs sources that the guard allows under a real Python, as an unprivileged user, and tells which
// denied modules they imported by one of the forms that the guard claims to see.
type codeOracle struct {
	input  *json.Encoder
	output *bufio.Scanner
}

func newCodeOracle(t testing.TB) *codeOracle {
	t.Helper()
	const python = "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		t.Skip("no python3 here")
	}
	program, err := os.ReadFile("testdata/oracle.py")
	must(t, err)
	dir, err := os.MkdirTemp("", "guards-oracle")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Mkdir(filepath.Join(dir, "cwd"), 0o755))
	must(t, os.Chmod(filepath.Join(dir, "cwd"), 0o777))
	cmd := exec.Command(python, "-I", "-S", "-c", string(program))
	cmd.Dir = filepath.Join(dir, "cwd")
	cmd.Env = []string{"PATH=/nonexistent"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true}
	}
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	oracle := &codeOracle{input: json.NewEncoder(stdin), output: bufio.NewScanner(stdout)}
	must(t, oracle.input.Encode(defaultDeniedModules()))
	return oracle
}

func (o *codeOracle) imports(t testing.TB, source string) []string {
	t.Helper()
	must(t, o.input.Encode(source))
	if !o.output.Scan() {
		t.Skip("the oracle ended")
	}
	var names []string
	must(t, json.Unmarshal(o.output.Bytes(), &names))
	return names
}

func TestTheCodeOracleSeesImports(t *testing.T) {
	t.Parallel()
	oracle := newCodeOracle(t)
	for _, source := range []string{"import os", "from os import path", "exec('import os')", "__import__('os')", "import ｏｓ", "#coding:utf-7\n+AGkAbQBwAG8AcgB0- os", "from pathlib import os", "import math, os", "eval('__import__(\"o\" \"s\")')"} {
		if len(oracle.imports(t, source)) == 0 {
			t.Errorf("the oracle did not see %q", source)
		}
	}
}

func TestAllowedSourcesImportNothingDenied(t *testing.T) {
	t.Parallel()
	policy := codePolicy(t, v1alpha1.CodePolicy{})
	oracle := newCodeOracle(t)
	for _, source := range append(append([]string{}, allowedSources...), deniedSources...) {
		if checkCode(policy, "python", source) != nil {
			continue
		}
		if names := oracle.imports(t, source); len(names) > 0 {
			t.Errorf("allowed, and imported %q: %q", names, source)
		}
	}
}

// FuzzCode checks that sources that the guard allows import no denied module.
func FuzzCode(f *testing.F) {
	for _, source := range append(append([]string{}, allowedSources...), deniedSources...) {
		f.Add(source)
	}
	policy := codePolicy(f, v1alpha1.CodePolicy{})
	var oracle *codeOracle
	if isFuzzing() {
		oracle = newCodeOracle(f)
	}
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) > 4096 || checkCode(policy, "python", source) != nil || oracle == nil {
			return
		}
		if names := oracle.imports(t, source); len(names) > 0 {
			t.Errorf("allowed, and imported %q: %q", names, source)
		}
	})
}

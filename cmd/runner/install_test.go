package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// installed is what the folder of the copy holds.
func installed(t *testing.T, path string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Fatalf("beside the copy there is %v, %v", entries, err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o555 {
		t.Fatalf("the copy has mode %v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestACopyOfTheRunnerReplacesWhatIsThere(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, path string){
		"nothing":       func(*testing.T, string) {},
		"an older copy": func(t *testing.T, path string) { write(t, path, "a longer one than the other") },
		"a link": func(t *testing.T, path string) {
			if err := os.Symlink("/etc/passwd", path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "runner")
			before(t, path)
			if err := install(write(t, filepath.Join(t.TempDir(), "program"), "program"), path); err != nil {
				t.Fatal(err)
			}
			if got := installed(t, path); got != "program" {
				t.Errorf("the copy holds %q", got)
			}
		})
	}
}

// Nobody but its owner may change a copy, whatever the umask takes away or leaves.
func TestACopyOfTheRunnerHasItsModeUnderAnyUmask(t *testing.T) {
	for _, mask := range []int{0, 0o077, 0o777} {
		path := filepath.Join(t.TempDir(), "runner")
		program := write(t, filepath.Join(t.TempDir(), "program"), "program")
		old := syscall.Umask(mask)
		err := install(program, path)
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		installed(t, path)
	}
}

func TestACopyThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "runner")
	if err := os.MkdirAll(filepath.Join(target, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	program := write(t, filepath.Join(t.TempDir(), "program"), "program")
	for what, tc := range map[string]struct{ program, path, want string }{
		"a folder in its place": {program, target, "put the copy in its place"},
		"no folder":             {program, filepath.Join(dir, "no", "runner"), "make a file for the copy"},
		"no program":            {filepath.Join(dir, "none"), filepath.Join(dir, "x"), "open the runner"},
		"a folder for program":  {dir, filepath.Join(dir, "x"), "copy the runner"},
	} {
		if err := install(tc.program, tc.path); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// What the init container runs: the program copies itself, and the copy runs.
func TestTheRunnerInstallsItself(t *testing.T) {
	dir := t.TempDir()
	program, path := filepath.Join(dir, "program"), filepath.Join(dir, "to", "runner")
	build := exec.Command("go", "build", "-trimpath", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if out, err := exec.Command(program, "install", path).CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%v: %s", err, out)
		}
	}
	// Without variables a runner says what it lacks: the copy is one.
	out, err := exec.Command(path).CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "runner: ") {
		t.Errorf("the copy said %q, %v", out, err)
	}
	for _, args := range [][]string{{"install"}, {"install", path, "more"}, {"other"}} {
		if out, err := exec.Command(program, args...).CombinedOutput(); err == nil || !strings.Contains(string(out), "runner: ") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}

package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/spec"
)

// childVariable has the name of the test that runs in a child process.
const childVariable = "FILES_TEST_CHILD"

func TestMain(m *testing.M) {
	prepareChild()
	unix.Umask(0o022)
	goleak.VerifyTestMain(m)
}

// runChild runs tests of this binary in a child process, and fails with it.
func runChild(t *testing.T, run string, attr *syscall.SysProcAttr, environ ...string) {
	t.Helper()
	dir := publicDir(t)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "files.test")
	if err := os.WriteFile(binary, self, 0o755); err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(temp, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(temp, 0o777); err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=" + run, "-test.short", "-test.v"}
	if deadline, ok := t.Deadline(); ok {
		// A child that hangs says where, and doesn't outlive this process.
		args = append(args, fmt.Sprintf("-test.timeout=%v", time.Until(deadline)*9/10))
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.SysProcAttr = temp, attr
	cmd.Env = append(append(os.Environ(), "TMPDIR="+temp, childVariable+"="+t.Name()), environ...)
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skipf("this user can't start such a process: %v", err)
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) && !bytes.Contains(out, []byte("--- SKIP")) {
		t.Fatalf("in the child process: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "--- SKIP") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

func isChild(t *testing.T) bool { return os.Getenv(childVariable) == t.Name() }

// publicDir is a temporary directory that every user can enter.
func publicDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it needs root")
	}
}

// world is an allowed directory, and one outside of it that nothing may reach.
type world struct {
	t             testing.TB
	root, outside string
	rules         Rules
}

const canary = "CANARY: nobody may read or change this\n"

func newWorld(t testing.TB) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, root: dir + "/root", outside: dir + "/outside"}
	w.rules = Rules{FileRules: spec.FileRules{ReadPaths: []string{w.root}, WritePaths: []string{w.root}}}
	for _, d := range []string{w.root, w.outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(w.outside+"/canary", []byte(canary), 0o644); err != nil {
		t.Fatal(err)
	}
	return w
}

// file makes a file with its parents.
func (w *world) file(name, content string) string {
	w.t.Helper()
	w.dir(filepath.Dir(name))
	path := filepath.Join(w.root, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) dir(name string) string {
	w.t.Helper()
	path := filepath.Join(w.root, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) link(target, name string) {
	w.t.Helper()
	w.dir(filepath.Dir(name))
	if err := os.Symlink(target, filepath.Join(w.root, name)); err != nil {
		w.t.Fatal(err)
	}
}

// do carries out a request in the root.
func (w *world) do(r spec.File) (string, Result, error) {
	w.t.Helper()
	if r.WorkingDir == "" {
		r.WorkingDir = w.root
	}
	out, result, err := Do(w.t.Context(), &w.rules, &r)
	return string(out), result, err
}

// must carries out a request that succeeds.
func (w *world) must(r spec.File) (string, Result) {
	w.t.Helper()
	out, result, err := w.do(r)
	if err != nil {
		w.t.Fatalf("%s %q: %v", r.Operation, r.Path, err)
	}
	return out, result
}

// refused carries out a request that fails for a reason, and says something that a message has to contain.
func (w *world) refused(r spec.File, reason string, says string) {
	w.t.Helper()
	out, _, err := w.do(r)
	if got := reasonOf(err); got != reason {
		w.t.Errorf("%s %q: %s (%v), want %s", r.Operation, r.Path, got, err, reason)
		return
	}
	if !strings.Contains(err.Error(), says) {
		w.t.Errorf("%s %q: %q doesn't say %q", r.Operation, r.Path, err, says)
	}
	if out != "" {
		w.t.Errorf("%s %q was refused, and returned %q", r.Operation, r.Path, out)
	}
}

func reasonOf(err error) string {
	var known *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &known):
		return known.Reason
	}
	return "not a reason"
}

// content returns what a file of the root has.
func (w *world) content(name string) string {
	w.t.Helper()
	content, err := os.ReadFile(filepath.Join(w.root, name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(content)
}

// checkOutside fails if anything outside of the root has changed, or a temporary file is left in it.
func (w *world) checkOutside() {
	w.t.Helper()
	entries, err := os.ReadDir(w.outside)
	if err != nil || len(entries) != 1 {
		w.t.Errorf("outside has %v (%v)", entries, err)
	}
	if content, err := os.ReadFile(w.outside + "/canary"); err != nil || string(content) != canary {
		w.t.Errorf("the canary is %q (%v)", content, err)
	}
}

// checkNothingLeft fails if a temporary file is left in the root.
func (w *world) checkNothingLeft() {
	w.t.Helper()
	_ = filepath.WalkDir(w.root, func(path string, d os.DirEntry, _ error) error {
		if d != nil && isTemporary(d.Name()) {
			w.t.Errorf("%s is left", path)
		}
		return nil
	})
}

// decode returns the objects of an output.
func decode[T any](t testing.TB, out string) (all []T) {
	t.Helper()
	for line := range strings.Lines(out) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, v)
	}
	return all
}

func paths[T any](all []T, path func(T) string) (got []string) {
	for _, v := range all {
		got = append(got, path(v))
	}
	return got
}

func found(t testing.TB, out string) []string {
	return paths(decode[Found](t, out), func(f Found) string { return f.Path })
}

func entries(t testing.TB, out string) []string {
	return paths(decode[Entry](t, out), func(e Entry) string { return e.Path })
}

// number is one of a Result, 0 for one that doesn't apply.
func number(n *int64) int {
	if n == nil {
		return 0
	}
	return int(*n)
}

package supervisor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/files"
	"toolcall.dev/operator/internal/spec"
	"toolcall.dev/operator/internal/supervisor"
)

// fileCall is an assignment for a file action in the executor's directory.
func fileCall(e *supervisor.Executor, f spec.File) *wire.Assignment {
	a := shell(e, "")
	a.Argv, a.File, a.MaxBytesPerStream = nil, &f, 64<<10
	return a
}

func TestFilesAreReadAndWrittenWithoutAProcess(t *testing.T) {
	e := executor(t)
	// Nothing could be started.
	e.Environ = []string{"PATH=/none"}
	content := "one\ntwo\nthree\n"
	steps := []struct {
		file spec.File
		out  string
		done func(*result.File) bool
		says string
	}{
		{spec.File{Operation: "MakeDirectory", Path: "d"}, "", func(f *result.File) bool { return f.Created }, "made the directory"},
		{spec.File{Operation: "Write", Path: "d/a", Content: []byte(content)}, "", func(f *result.File) bool {
			return f.Created && *f.Bytes == 14 && len(f.SHA256) == 64 && f.Path == e.WorkingDir+"/d/a"
		}, "d/a, which is new"},
		{spec.File{Operation: "Write", Path: "d/a", Content: []byte(content)}, "", func(f *result.File) bool { return !f.Created }, "d/a, in place of the file that was there"},
		{spec.File{Operation: "Read", Path: "d/a", Limit: 2}, "one\ntwo\n", func(f *result.File) bool {
			return f.Truncated && *f.NextOffset == 3 && *f.Lines == 2 && *f.Bytes == 8 && f.SHA256 == ""
		}, "read 8 bytes"},
		{spec.File{Operation: "Read", Path: "d/a", Offset: 3}, "three\n", func(f *result.File) bool { return !f.Truncated && f.NextOffset == nil }, "read 6 bytes"},
		{spec.File{Operation: "Edit", Path: "d/a", OldString: "two", NewString: "2"}, "", func(f *result.File) bool { return *f.Replaced == 1 && *f.Bytes == 12 }, "edited"},
		{spec.File{Operation: "Grep", Path: ".", Pattern: "^t"}, `{"path":"d/a","lineNumber":3,"column":1,"line":"three"}` + "\n", func(f *result.File) bool { return *f.Matches == 1 }, "found 1 results"},
		{spec.File{Operation: "Glob", Path: ".", Pattern: "**"}, "", func(f *result.File) bool { return *f.Matches == 2 }, "found 2 results"},
		{spec.File{Operation: "List", Path: "d"}, "", func(f *result.File) bool { return *f.Matches == 1 }, "found 1 results"},
		{spec.File{Operation: "Move", Path: "d/a", Destination: "b"}, "", func(f *result.File) bool { return f.Path == e.WorkingDir+"/b" }, "/b, which is new"},
		{spec.File{Operation: "Write", Path: "d/a"}, "", func(f *result.File) bool { return f.Created }, "wrote 0 bytes"},
		{spec.File{Operation: "Move", Path: "b", Destination: "d/a", Overwrite: true}, "", func(f *result.File) bool { return !f.Created }, "d/a, in place of the file that was there"},
		{spec.File{Operation: "Move", Path: "d/a", Destination: "b"}, "", func(f *result.File) bool { return f.Created }, "which is new"},
		{spec.File{Operation: "Stat", Path: "b"}, "", func(f *result.File) bool { return *f.Bytes == 12 }, "looked at"},
		{spec.File{Operation: "Delete", Path: "d", Recursive: true}, "", func(f *result.File) bool { return *f.Matches == 1 }, "deleted"},
	}
	for _, step := range steps {
		r := execute(t, e, fileCall(e, step.file))
		o := &r.Outcome
		if o.Reason != result.Completed || !o.Started || o.ExitCode != nil || o.StartTime.IsZero() || o.File == nil {
			t.Fatalf("%s: %+v", step.file.Operation, o)
		}
		if !step.done(o.File) || !strings.Contains(o.Message, step.says) || step.out != "" && string(o.Stdout.Head) != step.out {
			t.Errorf("%s: %q, %q, %+v", step.file.Operation, o.Message, o.Stdout.Head, o.File)
		}
	}
	if got, err := os.ReadFile(filepath.Join(e.WorkingDir, "b")); err != nil || string(got) != "one\n2\nthree\n" {
		t.Errorf("the file is %q: %v", got, err)
	}
}

func TestAFileActionThatFailsSaysWhy(t *testing.T) {
	e := executor(t)
	if err := os.Symlink("/etc", filepath.Join(e.WorkingDir, "out")); err != nil {
		t.Fatal(err)
	}
	for reason, f := range map[string]spec.File{
		result.FileNotFound:   {Operation: "Read", Path: "none"},
		result.IsDirectory:    {Operation: "Read", Path: "."},
		result.PathNotAllowed: {Operation: "Read", Path: "out/passwd"},
		result.InvalidPattern: {Operation: "Grep", Path: ".", Pattern: "("},
		result.FileError:      {Operation: "Read", Path: strings.Repeat("x", 300)},
	} {
		r := execute(t, e, fileCall(e, f))
		if o := &r.Outcome; o.Reason != reason || o.Message == "" || !o.Started || o.ExitCode != nil || o.Stdout.Bytes != 0 {
			t.Errorf("want %s, got %+v", reason, o)
		}
	}
}

// What a policy leaves open, the environment and the image decide: reading where a call may start, writing where one of a
// session may.
func TestWhereFileActionsReachWithoutAPolicysPaths(t *testing.T) {
	e := executor(t)
	home, other := t.TempDir(), t.TempDir()
	e.Environ = []string{"HOME=" + home}
	try := func(operation spec.Operation, path string) string {
		a := fileCall(e, spec.File{Operation: operation, Path: path, Content: []byte("x")})
		a.Environment.Layers = []envresolve.Layer{{Source: envresolve.SourceCall, Vars: []envresolve.Var{{Name: "HOME", Value: other}}}}
		if e.WorkingDir == "/" {
			a.Environment.AllowedPaths = nil
		}
		return execute(t, e, a).Outcome.Reason
	}
	if os.WriteFile(filepath.Join(other, "a"), nil, 0o600) != nil {
		t.Fatal("can't write")
	}
	for path, want := range map[string]string{
		e.WorkingDir + "/a": result.Completed, home + "/a": result.Completed, "/tmp/toolcall-file-test/a": result.Completed, "/etc/toolcall-file-test": result.PathNotAllowed,
	} {
		if got := try("Write", path); got != want {
			t.Errorf("writing %s: %s", path, got)
		}
	}
	defer os.RemoveAll("/tmp/toolcall-file-test")
	readable := map[string]string{e.WorkingDir + "/a": result.Completed, home + "/a": result.Completed, "/etc/hostname": result.PathNotAllowed}
	// An image without a directory of its own is no image that opens everything.
	for _, e.WorkingDir = range []string{e.WorkingDir, "/"} {
		for path, want := range readable {
			if got := try("Read", path); got != want {
				t.Errorf("reading %s beside %s: %s", path, e.WorkingDir, got)
			}
		}
	}
}

func TestAPolicysPathsHoldFileActions(t *testing.T) {
	e := executor(t)
	secret := filepath.Join(e.WorkingDir, "secret")
	for _, name := range []string{"secret", "public"} {
		if err := os.WriteFile(filepath.Join(e.WorkingDir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	held := spec.FileRules{ReadPaths: []string{e.WorkingDir}, WritePaths: []string{}, DeniedPaths: []string{"secret"}}
	for _, c := range []struct {
		file spec.File
		want string
	}{
		{spec.File{Operation: "Read", Path: "public"}, result.Completed},
		{spec.File{Operation: "Read", Path: secret}, result.PathNotAllowed},
		{spec.File{Operation: "Write", Path: "public"}, result.PathNotAllowed},
		{spec.File{Operation: "Read", Path: "/etc/hostname"}, result.PathNotAllowed},
	} {
		c.file.Rules = held
		if o := execute(t, e, fileCall(e, c.file)).Outcome; o.Reason != c.want {
			t.Errorf("%s %s: %s (%s)", c.file.Operation, c.file.Path, o.Reason, o.Message)
		}
	}
}

// The status keeps no more: what is cut is cut at its end, and the next Read goes on there.
func TestALongReadIsCutAtItsEnd(t *testing.T) {
	e := executor(t)
	var content strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&content, "line %d\n", i)
	}
	if err := os.WriteFile(filepath.Join(e.WorkingDir, "long"), []byte(content.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, unit := range []spec.Unit{spec.UnitLines, spec.UnitBytes} {
		var got strings.Builder
		f := spec.File{Operation: "Read", Path: "long", Unit: unit, Limit: 1 << 40}
		for reads := 0; ; reads++ {
			a := fileCall(e, f)
			a.MaxBytesPerStream = 1000
			o := execute(t, e, a).Outcome
			if len(o.Stdout.Tail) > 0 || o.Stdout.Bytes > 1000 || reads > 20 {
				t.Fatalf("%s: read %d has %d bytes", unit, reads, o.Stdout.Bytes)
			}
			got.Write(o.Stdout.Head)
			if !o.File.Truncated {
				break
			}
			f.Offset = *o.File.NextOffset
		}
		if got.String() != content.String() {
			t.Errorf("%s: %d bytes are others than the file's %d", unit, got.Len(), content.Len())
		}
	}
	a := fileCall(e, spec.File{Operation: "Grep", Path: ".", Pattern: "line"})
	a.MaxBytesPerStream = 1000
	if o := execute(t, e, a).Outcome; !o.File.Truncated || o.Stdout.Bytes > 1000 || !strings.HasSuffix(string(o.Stdout.Head), "}\n") || strings.Count(string(o.Stdout.Head), "\n") != int(*o.File.Matches) {
		t.Errorf("a long Grep has %d bytes: %+v", o.Stdout.Bytes, o.File)
	}
}

func TestAFileActionIsStoppedBeforeItBegins(t *testing.T) {
	e := executor(t)
	ctx, stop := context.WithCancelCause(t.Context())
	stop(runner.Stop{Reason: result.SessionEnded, Message: "the session ended"})
	r := e.Execute(ctx, fileCall(e, spec.File{Operation: "Write", Path: "a"}))
	if r.Outcome.Started || r.Outcome.Reason != result.SessionEnded || r.Validate() != nil {
		t.Errorf("got %+v", r.Outcome)
	}
}

// stoppedContext has ended when stopped says so.
type stoppedContext struct {
	context.Context
	stopped func() bool
}

func (c *stoppedContext) Err() error {
	if c.stopped() {
		return runner.Stop{Reason: result.CancelRequested, Message: "the call was cancelled while it ran"}
	}
	return nil
}

func TestADeleteThatIsStoppedSaysHowMuchIsGone(t *testing.T) {
	e := executor(t)
	const count = 10
	for i := range count {
		if err := os.MkdirAll(filepath.Join(e.WorkingDir, "many", fmt.Sprint(i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	left := func() int {
		all, _ := os.ReadDir(filepath.Join(e.WorkingDir, "many"))
		return len(all)
	}
	ctx := &stoppedContext{context.Background(), func() bool { return left() < count }}
	a := fileCall(e, spec.File{Operation: "Delete", Path: "many", Recursive: true})
	// A limit would make a context of its own.
	a.TimeoutMilliseconds = 0
	o := e.Execute(ctx, a).Outcome
	want := fmt.Sprintf("the call was cancelled while it ran. %d files and directories in it were deleted before.", count-left())
	if left() == 0 || o.Reason != result.CancelRequested || o.Message != want || *o.File.Matches != int64(count-left()) {
		t.Errorf("%d are left: %s, %q, %+v", left(), o.Reason, o.Message, o.File)
	}
}

// stuckFile is a file that nobody can open until it is let go, as on a file system of a server that is away.
func stuckFile(t *testing.T, e *supervisor.Executor) (name string, letGo func()) {
	t.Helper()
	name = filepath.Join(e.WorkingDir, "stuck")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The kernel has whoever opens the file wait for an answer of this descriptor.
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err == nil {
		err = unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM, unix.AT_FDCWD, name)
	}
	if err != nil {
		t.Skipf("this kernel or user can't hold up an open: %v", err)
	}
	letGo = sync.OnceFunc(func() { unix.Close(fd) })
	t.Cleanup(letGo)
	return name, letGo
}

// Neither the call nor its session is held up, and what hangs takes no more than a few threads.
func TestAFileSystemThatHangsEndsTheCallAtItsLimit(t *testing.T) {
	e := executor(t)
	_, letGo := stuckFile(t, e)
	stuck := fileCall(e, spec.File{Operation: "Read", Path: "stuck"})
	stuck.TimeoutMilliseconds = 200
	var ended sync.WaitGroup
	for range 4 {
		ended.Go(func() {
			if o := e.Execute(t.Context(), stuck).Outcome; o.Reason != result.TimedOut || !o.Started || !strings.Contains(o.Message, "has not ended yet") {
				t.Errorf("got %+v", o)
			}
		})
	}
	ended.Wait()
	other := fileCall(e, spec.File{Operation: "Stat", Path: "."})
	other.TimeoutMilliseconds = 200
	if o := execute(t, e, other).Outcome; o.Reason != result.StartTimeout || o.Started || !strings.Contains(o.Message, "4 other operations") {
		t.Errorf("beside four that hang: %+v", o)
	}
	letGo()
	other.TimeoutMilliseconds = 60_000
	if o := execute(t, e, other).Outcome; o.Reason != result.Completed {
		t.Errorf("afterwards: %+v", o)
	}
}

// A directory that is missing can be made, and doesn't keep others from being read.
func TestAFileActionInADirectoryThatIsNotThere(t *testing.T) {
	e := executor(t)
	missing := e.WorkingDir + "/repo"
	try := func(f spec.File) *result.Outcome {
		a := fileCall(e, f)
		a.Environment.WorkingDir = missing
		return &execute(t, e, a).Outcome
	}
	if o := try(spec.File{Operation: "Read", Path: "a"}); o.Reason != result.FileNotFound || !strings.Contains(o.Message, missing) {
		t.Errorf("a file in it: %+v", o)
	}
	if o := try(spec.File{Operation: "List", Path: e.WorkingDir}); o.Reason != result.Completed {
		t.Errorf("another directory: %+v", o)
	}
	for _, f := range []spec.File{{Operation: "MakeDirectory", Path: missing}, {Operation: "Write", Path: "d/a", Content: []byte("x")}, {Operation: "Read", Path: "d/a"}} {
		if o := try(f); o.Reason != result.Completed || o.WorkingDir != missing || o.File.Path != missing+strings.TrimPrefix("/"+f.Path, "/"+missing) {
			t.Errorf("%s: %+v, %+v", f.Operation, o, o.File)
		}
	}
	a := fileCall(e, spec.File{Operation: "MakeDirectory", Path: "/etc/x"})
	a.Environment.WorkingDir = "/etc"
	if o := execute(t, e, a).Outcome; o.Reason != result.WorkingDirNotAllowed {
		t.Errorf("one that isn't allowed: %+v", o)
	}
	a = fileCall(e, spec.File{Operation: "Write", Path: "a"})
	a.Environment.WorkingDir = "~/repo"
	if o := execute(t, e, a).Outcome; o.Reason != result.WorkingDirNotFound || !strings.Contains(o.Message, "not the home directory") {
		t.Errorf("one that begins like the home directory: %+v", o)
	}
}

func TestATildeIsTheHomeOfTheCallsProcess(t *testing.T) {
	e := executor(t)
	home := filepath.Join(e.WorkingDir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	e.Environ = []string{"HOME=" + home}
	if o := execute(t, e, fileCall(e, spec.File{Operation: "Write", Path: "~/a", Content: []byte("x")})).Outcome; o.Reason != result.Completed || o.File.Path != home+"/a" {
		t.Errorf("that of the image: %+v", o)
	}
	a := fileCall(e, spec.File{Operation: "Stat", Path: "~"})
	a.Environment.Layers = []envresolve.Layer{{Source: envresolve.SourceCall, Vars: []envresolve.Var{{Name: "HOME", Value: e.WorkingDir}}}}
	if o := execute(t, e, a).Outcome; o.Reason != result.Completed || o.File.Path != e.WorkingDir {
		t.Errorf("that of the call: %+v", o)
	}
	rules, request, err := e.TransferRules(&wire.Transfer{Kind: wire.TransferRead, Path: "~/a", Environment: shell(e, "").Environment})
	if err != nil {
		t.Fatal(err)
	}
	source, err := files.OpenSource(t.Context(), rules, request)
	if err != nil || source.Path != home+"/a" {
		t.Fatalf("a transfer reads %+v: %v", source, err)
	}
	source.Close()
}

func TestTheMessageSaysWhyNothingIsShown(t *testing.T) {
	e := executor(t)
	for name, content := range map[string]string{"three": "a\nb\nc\n", "p.png": "\x89PNG\x00\xff", "app/[id]/page": "x"} {
		name = filepath.Join(e.WorkingDir, name)
		if os.MkdirAll(filepath.Dir(name), 0o755) != nil || os.WriteFile(name, []byte(content), 0o600) != nil {
			t.Fatal("can't write")
		}
	}
	for says, f := range map[string]spec.File{
		"three has 3 lines":           {Operation: "Read", Path: "three", Offset: 100},
		"p.png is a binary file of 6": {Operation: "Read", Path: "p.png"},
		`write app/\[id\]/page`:       {Operation: "Glob", Path: ".", Pattern: "app/[id]/page"},
	} {
		if o := execute(t, e, fileCall(e, f)).Outcome; o.Reason != result.Completed || !strings.Contains(o.Message, says) || o.File.Binary != (f.Path == "p.png") {
			t.Errorf("want %q, got %q, %+v", says, o.Message, o.File)
		}
	}
}

func TestAnOddHomeIsCleaned(t *testing.T) {
	e := executor(t)
	home := t.TempDir()
	e.Environ = []string{"HOME=/" + home + "/./"}
	if o := execute(t, e, fileCall(e, spec.File{Operation: "Write", Path: home + "/a"})).Outcome; o.Reason != result.Completed {
		t.Errorf("got %+v", o)
	}
}

// What a call may write it could move to where it may read.
func TestWhatMayBeWrittenMayBeRead(t *testing.T) {
	e := executor(t)
	for _, name := range []string{"public", "drop"} {
		if err := os.Mkdir(filepath.Join(e.WorkingDir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	held := spec.FileRules{ReadPaths: []string{e.WorkingDir + "/public"}, WritePaths: []string{e.WorkingDir + "/drop"}}
	for _, f := range []spec.File{{Operation: "Write", Path: "drop/a", Content: []byte("x")}, {Operation: "Read", Path: "drop/a"}} {
		f.Rules = held
		if o := execute(t, e, fileCall(e, f)).Outcome; o.Reason != result.Completed {
			t.Errorf("%s: %+v", f.Operation, o)
		}
	}
}

package files

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/spec"
)

// prepareChild does in a child process what has to come before all tests.
func prepareChild() {
	switch os.Getenv(childVariable) {
	case "TestWithoutOpenat2":
		failSyscall(unix.SYS_OPENAT2, unix.ENOSYS)
	case "TestWritesFailWhenTheQuotaIsUsedUp":
		failSyscall(unix.SYS_FSYNC, unix.EDQUOT)
	case "TestKilledWhileWriting":
		writeForever(os.Getenv("FILES_TEST_DIR"))
	}
}

// TestAsNobody runs all tests as an unprivileged user, as pods run.
func TestAsNobody(t *testing.T) {
	needRoot(t)
	runChild(t, ".", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
}

func TestPermissions(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may do everything")
	}
	w := newWorld(t)
	for name, mode := range map[string]os.FileMode{"unreadable": 0o200, "readonly": 0o444} {
		if err := os.Chmod(w.file(name, "text"), mode); err != nil {
			t.Fatal(err)
		}
	}
	w.file("closed/f", "text")
	w.file("fixed/f", "text")
	for name, mode := range map[string]os.FileMode{"closed": 0, "fixed": 0o555} {
		if err := os.Chmod(w.root+"/"+name, mode); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(w.root+"/"+name, 0o755) })
	}
	for _, r := range []spec.File{
		{Operation: spec.OperationRead, Path: "unreadable"},
		{Operation: spec.OperationEdit, Path: "unreadable", OldString: "t"},
		{Operation: spec.OperationEdit, Path: "readonly", OldString: "text"},
		{Operation: spec.OperationWrite, Path: "readonly"},
		{Operation: spec.OperationRead, Path: "closed/f"},
		{Operation: spec.OperationList, Path: "closed"},
		{Operation: spec.OperationWrite, Path: "fixed/f"},
		{Operation: spec.OperationWrite, Path: "fixed/new"},
		{Operation: spec.OperationMakeDirectory, Path: "fixed/new"},
		{Operation: spec.OperationDelete, Path: "fixed/f"},
		{Operation: spec.OperationDelete, Path: "fixed", Recursive: true},
		{Operation: spec.OperationMove, Path: "fixed/f", Destination: "f"},
		{Operation: spec.OperationMove, Path: "readonly", Destination: "fixed/f", Overwrite: true},
	} {
		w.refused(r, reason.PermissionDenied, "Stat shows its mode, and its directory's")
	}
	_, result := w.must(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "text"})
	if number(result.Matches) != 2 || result.Skipped.Unreadable != 2 {
		t.Errorf("%+v", result)
	}
	w.checkNothingLeft()
}

// TestOnOtherFileSystems has its own mounts.
func TestOnOtherFileSystems(t *testing.T) {
	needRoot(t)
	if !isChild(t) {
		runChild(t, "^TestOnOtherFileSystems$", &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS})
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skip(err)
	}
	t.Run("full", testFull)
	t.Run("deletes of volumes", testDeletesOfVolumes)
	t.Run("other kinds", testOtherKinds)
	t.Run("moves across", testMovesAcross)
	t.Run("moves nothing across", testMovesNothingAcross)
}

func mount(t *testing.T, source, target, kind string, flags uintptr, data string) {
	t.Helper()
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		t.Skip("mount: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
}

func testFull(t *testing.T) {
	w := newWorld(t)
	mount(t, "tmpfs", w.dir("small"), "tmpfs", 0, "size=64k,nr_inodes=10")
	w.file("small/f", "old")
	big := make([]byte, 128<<10)
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "small/f", Content: big}, reason.NoSpace, "full")
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "small/a/b/f", Content: big}, reason.NoSpace, "full")
	w.refused(spec.File{Operation: spec.OperationEdit, Path: "small/f", OldString: "old", NewString: string(big)}, reason.NoSpace, "full")
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "small" + strings.Repeat("/d", 20), Content: []byte("x")}, reason.NoSpace, "full")
	w.file("big", string(big))
	w.refused(spec.File{Operation: spec.OperationMove, Path: "big", Destination: "small/big"}, reason.NoSpace, "full")
	if w.content("small/f") != "old" || w.content("big") != string(big) {
		t.Error("a file was changed")
	}
	if all, _ := os.ReadDir(w.root + "/small"); len(all) != 1 {
		t.Errorf("%v is left", all)
	}
	// Between the two file systems files move, directories don't.
	if err := os.Chmod(w.file("script", "x"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(w.root+"/script", 7, 8); err != nil {
		t.Fatal(err)
	}
	w.refused(spec.File{Operation: spec.OperationMove, Path: "script", Destination: "small/f"}, reason.FileExists, "overwrite")
	w.file("larger", "four")
	w.rules.MaxWriteBytes = 3
	w.refused(spec.File{Operation: spec.OperationMove, Path: "larger", Destination: "small/larger"}, reason.FileTooLarge, "maxWriteBytes")
	w.must(spec.File{Operation: spec.OperationMove, Path: "larger", Destination: "same"})
	w.must(spec.File{Operation: spec.OperationMove, Path: "script", Destination: "small/f", Overwrite: true})
	var st unix.Stat_t
	if err := unix.Stat(w.root+"/small/f", &st); err != nil || st.Mode&0o777 != 0o750 || st.Uid != 7 || st.Gid != 8 || w.content("small/f") != "x" {
		t.Errorf("%v, %+v", err, st)
	}
	if _, err := os.Stat(w.root + "/script"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the source is left: %v", err)
	}
	w.refused(spec.File{Operation: spec.OperationMove, Path: w.dir("dir"), Destination: "small/dir"}, reason.NotSupported, "one by one")
	// A volume in the tree is neither deleted nor emptied.
	w.dir("tree/volume")
	mount(t, w.root+"/small", w.root+"/tree/volume", "", unix.MS_BIND, "")
	w.refused(spec.File{Operation: spec.OperationDelete, Path: "tree", Recursive: true}, reason.PermissionDenied, "volume")
	if w.content("small/f") != "x" {
		t.Error("a volume was emptied")
	}
	w.must(spec.File{Operation: spec.OperationRead, Path: "tree/volume/f"})
	w.checkNothingLeft()
}

// testDeletesOfVolumes has mounts that stat can't tell from the directory they are mounted in.
func testDeletesOfVolumes(t *testing.T) {
	w := newWorld(t)
	w.file("source/precious/f", "x")
	w.dir("tree/inner")
	w.dir("volume")
	mount(t, w.root+"/source", w.root+"/tree/inner", "", unix.MS_BIND, "")
	mount(t, w.root+"/source", w.root+"/volume", "", unix.MS_BIND, "")
	for _, path := range []string{"tree", "tree/inner", "volume", "volume/"} {
		w.refused(spec.File{Operation: spec.OperationDelete, Path: path, Recursive: true}, reason.PermissionDenied, "is a mounted volume: delete what is in it")
	}
	if w.content("source/precious/f") != "x" {
		t.Error("a volume was emptied")
	}
	w.must(spec.File{Operation: spec.OperationDelete, Path: "volume/precious", Recursive: true})
}

func testOtherKinds(t *testing.T) {
	w := newWorld(t)
	mount(t, "/proc", w.dir("proc"), "", unix.MS_BIND|unix.MS_REC, "")
	for _, path := range []string{"proc/self/environ", "proc/self/root" + w.outside + "/canary", "proc/self/cwd", "proc"} {
		w.refused(spec.File{Operation: spec.OperationRead, Path: path}, reason.PathNotAllowed, "kernel")
	}
	_, result := w.must(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "PATH"})
	if number(result.Matches) != 0 || result.Skipped.Denied != 1 {
		t.Errorf("%+v", result)
	}
	// A file of /proc can be mounted by itself.
	mount(t, "/proc/self/environ", w.file("innocent", ""), "", unix.MS_BIND, "")
	w.refused(spec.File{Operation: spec.OperationRead, Path: "innocent"}, reason.PathNotAllowed, "kernel")
	_, result = w.must(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "PATH", Glob: "innocent"})
	if number(result.Matches) != 0 || result.Skipped.Denied != 2 {
		t.Errorf("%+v", result)
	}
	mount(t, "tmpfs", w.dir("fixed"), "tmpfs", unix.MS_RDONLY, "")
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "fixed/f"}, reason.PermissionDenied, "read-only")
}

// failSyscall has the kernel refuse a system call to this process: openat2 with ENOSYS, as an old one does, or fsync with EDQUOT, as
// a network file system does whose quota is used up.
func failSyscall(number uint32, errno unix.Errno) {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: number},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
			uintptr(unsafe.Pointer(&program)))
		if failed != 0 {
			err = failed
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(99)
	}
}

func TestWritesFailWhenTheQuotaIsUsedUp(t *testing.T) {
	if !isChild(t) {
		runChild(t, "^TestWritesFailWhenTheQuotaIsUsedUp$", &syscall.SysProcAttr{})
		return
	}
	w := newWorld(t)
	w.file("f", "text")
	for _, r := range []spec.File{
		{Operation: spec.OperationWrite, Path: "f", Content: []byte("new")},
		{Operation: spec.OperationWrite, Path: "a/b/new", Content: []byte("new")},
		{Operation: spec.OperationEdit, Path: "f", OldString: "text", NewString: "new"},
	} {
		w.refused(r, reason.NoSpace, "the quota is used up")
	}
	if w.content("f") != "text" {
		t.Error("the file was changed")
	}
	if all, _ := os.ReadDir(w.root); len(all) != 1 {
		t.Errorf("%v is left", all)
	}
}

func TestWithoutOpenat2(t *testing.T) {
	if !isChild(t) {
		runChild(t, "^TestWithoutOpenat2$", &syscall.SysProcAttr{})
		return
	}
	w := newWorld(t)
	w.file("f", "text")
	for operation := range operations {
		w.refused(spec.File{Operation: operation, Path: "f", Destination: "g", Pattern: "x", OldString: "t"}, reason.NotSupported, "Linux 5.6")
	}
	if w.content("f") != "text" {
		t.Error("the file was changed")
	}
}

// killedContents are what the child writes by turns.
var killedContents = []string{strings.Repeat("a", 300<<10), strings.Repeat("b", 200<<10)}

// writeForever writes a file until it is killed, and says so each time.
func writeForever(dir string) {
	rules := &Rules{FileRules: spec.FileRules{WritePaths: []string{dir}}}
	for i := 0; ; i++ {
		r := &spec.File{Operation: spec.OperationWrite, Path: dir + "/f", Content: []byte(killedContents[i%2])}
		if _, _, err := Do(context.Background(), rules, r); err != nil {
			fmt.Println(err)
			os.Exit(99)
		}
		fmt.Println(i)
	}
}

// TestKilledWhileWriting kills a process that writes: the file is one or the other, and whole.
func TestKilledWhileWriting(t *testing.T) {
	w := newWorld(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w.file("f", killedContents[0])
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), childVariable+"="+t.Name(), "FILES_TEST_DIR="+w.root)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range round + 1 {
			if !lines.Scan() {
				t.Fatal("the child ended")
			}
		}
		// It is somewhere in the next write.
		for range round * 1000 {
			runtime.Gosched()
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if got := w.content("f"); got != killedContents[0] && got != killedContents[1] {
			t.Fatalf("%d bytes: half a file", len(got))
		}
		// Nothing but temporary files can be left, and those aren't shown.
		if out, _ := w.must(spec.File{Operation: spec.OperationGlob, Path: ".", Pattern: "**"}); len(found(t, out)) != 1 {
			t.Errorf("%s is left", out)
		}
		if all, _ := os.ReadDir(w.root); len(all) > round+2 {
			t.Errorf("%v is left after %d rounds", all, round+1)
		}
	}
}

// testMovesAcross changes a file while it moves to another file system.
func testMovesAcross(t *testing.T) {
	for name, change := range map[string]func(w *world) error{
		"written to": func(w *world) error { return os.WriteFile(w.root+"/f", []byte("new"), 0o644) },
		"replaced": func(w *world) error {
			return os.Rename(w.file("other", strings.Repeat("x", 2*sys.BufferBytes)), w.root+"/f")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			mount(t, "tmpfs", w.dir("small"), "tmpfs", 0, "")
			w.file("f", strings.Repeat("x", 2*sys.BufferBytes))
			c, from := w.opened("f", how{})
			_, to := w.opened("small/f", how{missing: true})
			// The first write to the disk is after the first look.
			var empty, now unix.Statfs_t
			if err := unix.Statfs(w.root+"/small", &empty); err != nil {
				t.Fatal(err)
			}
			ctx := &contextFunc{Context: t.Context()}
			ctx.err = func() error {
				if err := unix.Statfs(w.root+"/small", &now); err == nil && now.Bfree < empty.Bfree && !ctx.done {
					ctx.done = true
					return change(w)
				}
				return nil
			}
			c.ctx = ctx
			err := c.copyAcross(from, to)
			if err == nil {
				err = c.removeCopied(from, to)
			}
			if reasonOf(err) != reason.FileChanged && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(w.root + "/f"); err != nil || !ctx.done {
				t.Errorf("the source is gone: %v", err)
			}
		})
	}
}

// testMovesNothingAcross has nothing made that didn't move.
func testMovesNothingAcross(t *testing.T) {
	w := newWorld(t)
	mount(t, "tmpfs", w.dir("small"), "tmpfs", 0, "")
	w.file("d/f", "x")
	_, result, err := w.do(spec.File{Operation: spec.OperationMove, Path: "d", Destination: "small/d"})
	if reasonOf(err) != reason.NotSupported || result.Path != "" || result.Created {
		t.Errorf("%+v, %v", result, err)
	}
}

// contextFunc is a context that does something else when it is asked.
type contextFunc struct {
	context.Context
	err  func() error
	done bool
}

func (c *contextFunc) Err() error { return c.err() }

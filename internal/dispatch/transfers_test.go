package dispatch_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/spec"
	"toolcall.dev/operator/internal/supervisor"
)

// fileWorld is an operator, and a real runner of a session with a directory of its own.
type fileWorld struct {
	t       *testing.T
	session *dispatch.Runner
	dir     string
	o       *operator

	mu   sync.Mutex
	conn net.Conn
}

func (w *fileWorld) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn = conn
	return conn, err
}

// cut ends the runner's connection.
func (w *fileWorld) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn.Close()
}

func newFileWorld(t *testing.T) *fileWorld {
	t.Helper()
	o := startOperator(t, newIdentity(t))
	env := podEnv(o, "job")
	env[wire.EnvCall], env[wire.EnvPool] = "", "env"
	config := runnerOf(t, env)
	w := &fileWorld{t: t, dir: t.TempDir(), o: o}
	config.DialContext = w.dial
	executor := &supervisor.Executor{WorkingDir: "/", Environ: []string{wire.EnvRefPrefix + "1=correct-horse-battery"}}
	s := &supervisor.Supervisor{
		Dial: func(ctx context.Context, serving *wire.Serving) (supervisor.Conn, error) {
			return config.Dial(ctx, serving)
		},
		Begin: func(*wire.Begin) supervisor.ExecuteFunc { return nil },
		Files: executor,
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx, ctx) }()
	t.Cleanup(func() { cancel(); <-over })
	w.session = o.event(t)
	if err := w.session.Begin(theBegin()); err != nil {
		t.Fatal(err)
	}
	return w
}

// transfer is one of a path below the world's directory.
func (w *fileWorld) transfer(kind wire.TransferKind, path string, change ...func(*wire.Transfer)) wire.Transfer {
	m := wire.Transfer{
		Kind: kind, Path: path, Rules: spec.FileRules{ReadPaths: []string{w.dir}, WritePaths: []string{w.dir}},
		Environment: envresolve.Plan{WorkingDir: w.dir, AllowedPaths: []string{w.dir}},
	}
	for _, c := range change {
		c(&m)
	}
	return m
}

// put writes a file.
func (w *fileWorld) put(path string, content []byte, change ...func(*wire.Transfer)) (wire.TransferState, error) {
	w.t.Helper()
	up, err := w.session.Transfer(w.t.Context(), w.transfer(wire.TransferWrite, path, change...))
	if err != nil {
		return wire.TransferState{}, err
	}
	defer up.Close()
	for {
		n := min(wire.MaxPart, len(content))
		part := content[:n]
		content = content[n:]
		if err := up.Write(w.t.Context(), part, len(content) == 0); err != nil {
			return wire.TransferState{}, err
		}
		if len(content) == 0 {
			return up.Finish(w.t.Context())
		}
	}
}

// get reads a file.
func (w *fileWorld) get(path string) ([]byte, wire.TransferState, error) {
	w.t.Helper()
	down, err := w.session.Transfer(w.t.Context(), w.transfer(wire.TransferRead, path))
	if err != nil {
		return nil, wire.TransferState{}, err
	}
	defer down.Close()
	var got bytes.Buffer
	state := down.State()
	err = down.Read(w.t.Context(), 0, state.Size, func(p []byte) error {
		got.Write(p)
		return nil
	})
	return got.Bytes(), state, err
}

func sumOf(p []byte) string {
	sum := sha256.Sum256(p)
	return hex.EncodeToString(sum[:])
}

func random(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(p)
	return p
}

func reasonOf(err error) string {
	var failed *dispatch.TransferError
	if errors.As(err, &failed) {
		return failed.Reason
	}
	return ""
}

// entries are the names below the world's directory.
func (w *fileWorld) entries() (names []string) {
	w.t.Helper()
	list, err := os.ReadDir(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return names
}

func TestFilesGoUpAndDown(t *testing.T) {
	w := newFileWorld(t)
	for _, size := range []int{0, 1, wire.MaxPart, wire.MaxPart + 1, 10*wire.MaxPart + 17} {
		content := random(size)
		state, err := w.put("sub/dir/file", content)
		if err != nil || state.SHA256 != sumOf(content) || state.Size != int64(size) || state.Created != (size == 0) {
			t.Fatalf("%d bytes up: %+v, %v", size, state, err)
		}
		got, state, err := w.get("sub/dir/file")
		if err != nil || !bytes.Equal(got, content) || state.SHA256 != sumOf(content) || state.Size != int64(size) {
			t.Fatalf("%d bytes down: %d bytes, %+v, %v", size, len(got), state, err)
		}
	}
	gone, err := w.session.Transfer(t.Context(), w.transfer(wire.TransferDelete, "sub/dir/file"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Finish(t.Context()); err != nil {
		t.Error(err)
	}
	if _, _, err := w.get("sub/dir/file"); reasonOf(err) != "FileNotFound" {
		t.Errorf("after it was deleted: %v", err)
	}
}

func TestConditionsOfTransfers(t *testing.T) {
	w := newFileWorld(t)
	if _, err := w.put("file", []byte("one")); err != nil {
		t.Fatal(err)
	}
	with := func(sum string) func(*wire.Transfer) { return func(m *wire.Transfer) { m.IfSHA256 = &sum } }
	if _, err := w.put("file", []byte("two"), with("")); reasonOf(err) != "FileExists" {
		t.Errorf("only if it isn't there: %v", err)
	}
	for _, path := range []string{"file", "absent"} {
		if _, err := w.put(path, []byte("two"), with(sumOf([]byte("other")))); reasonOf(err) != "FileChanged" {
			t.Errorf("%s, if it is another: %v", path, err)
		}
	}
	if _, err := w.session.Transfer(t.Context(), w.transfer(wire.TransferDelete, "file", with(sumOf([]byte("other"))))); reasonOf(err) != "FileChanged" {
		t.Errorf("delete another: %v", err)
	}
	if got, _, err := w.get("file"); string(got) != "one" {
		t.Errorf("it is %q, %v", got, err)
	}
	if _, err := w.put("file", []byte("two"), with(sumOf([]byte("one")))); err != nil {
		t.Error(err)
	}
	if _, err := w.session.Transfer(t.Context(), w.transfer(wire.TransferDelete, "file", with(sumOf([]byte("two"))))); err != nil {
		t.Error(err)
	}
	if got := w.entries(); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

func TestTransfersAreHeldToTheRules(t *testing.T) {
	w := newFileWorld(t)
	outside := t.TempDir()
	for path, content := range map[string]string{outside + "/secret": "secret", w.dir + "/denied.key": "key"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, w.dir+"/link"); err != nil {
		t.Fatal(err)
	}
	deny := func(m *wire.Transfer) { m.Rules.DeniedPaths = []string{"*.key"} }
	for _, path := range []string{outside + "/secret", "link/secret", "../" + filepath.Base(outside) + "/secret", "denied.key", "/proc/self/environ", "/dev/zero"} {
		for _, kind := range []wire.TransferKind{wire.TransferRead, wire.TransferWrite, wire.TransferDelete} {
			one, err := w.session.Transfer(t.Context(), w.transfer(kind, path, deny))
			if reasonOf(err) != "PathNotAllowed" {
				t.Errorf("%s %s: %v", kind, path, err)
			}
			if one != nil {
				one.Close()
			}
		}
	}
	limit := func(m *wire.Transfer) { m.Rules.MaxWriteBytes = 1000 }
	if _, err := w.put("large", random(3*wire.MaxPart), limit); reasonOf(err) != "FileTooLarge" {
		t.Errorf("more than may be written: %v", err)
	}
	await(t, "what wasn't written is gone", func() bool { return len(w.entries()) == 2 })
}

// await waits until something holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func TestAnUploadThatBreaksOffLeavesNothing(t *testing.T) {
	w := newFileWorld(t)
	if _, err := w.put("file", []byte("before")); err != nil {
		t.Fatal(err)
	}
	for name, breakOff := range map[string]func(*dispatch.Transfer){
		"it is given up":          func(up *dispatch.Transfer) { up.Close() },
		"the connection is ended": func(*dispatch.Transfer) { w.cut() },
	} {
		for _, path := range []string{"file", "new/dir/file"} {
			up, err := w.session.Transfer(t.Context(), w.transfer(wire.TransferWrite, path))
			if err != nil {
				t.Fatal(name, err)
			}
			if err := up.Write(t.Context(), random(wire.MaxPart), false); err != nil {
				t.Fatal(name, err)
			}
			breakOff(up)
			if _, err := up.Finish(t.Context()); err == nil {
				t.Errorf("%s: it ended well", name)
			}
			await(t, name+": something is left", func() bool { return strings.Join(w.entries(), " ") == "file" })
			if strings.HasPrefix(name, "the") {
				before := w.session
				await(t, "the runner doesn't come back", func() bool {
					w.session = w.o.hub.RunnerByKey(before.KeyHash())
					return w.session != nil && w.session != before
				})
			}
		}
	}
	if got, _, err := w.get("file"); string(got) != "before" {
		t.Errorf("it is %q, %v", got, err)
	}
}

func TestAFileThatChangesWhileItIsReadBreaksOff(t *testing.T) {
	w := newFileWorld(t)
	content := random(12 * wire.MaxPart)
	if _, err := w.put("file", content); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(w.dir + "/file")
	if err != nil {
		t.Fatal(err)
	}
	down, err := w.session.Transfer(t.Context(), w.transfer(wire.TransferRead, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer down.Close()
	got, changed := 0, false
	err = down.Read(t.Context(), 0, down.State().Size, func(p []byte) error {
		if got += len(p); !changed {
			changed = true
			file, err := os.OpenFile(w.dir+"/file", os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer file.Close()
			if _, err := file.WriteAt([]byte("other"), int64(len(content)-100)); err != nil {
				return err
			}
			// The times don't tell.
			return os.Chtimes(w.dir+"/file", before.ModTime(), before.ModTime())
		}
		return nil
	})
	if reasonOf(err) != "FileChanged" || got >= len(content) {
		t.Errorf("%d bytes came of %d: %v", got, len(content), err)
	}
}

// While calls exchange a file for a link out of the session's directories, nothing outside is read or written.
func TestNoRaceLeadsOut(t *testing.T) {
	w := newFileWorld(t)
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/file", []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	swapping := make(chan struct{})
	go func() {
		defer close(swapping)
		for {
			select {
			case <-over:
				return
			default:
			}
			_ = os.RemoveAll(w.dir + "/d")
			_ = os.Mkdir(w.dir+"/d", 0o755)
			_ = os.WriteFile(w.dir+"/d/file", []byte("inside"), 0o600)
			_ = os.Remove(w.dir + "/d/file")
			_ = os.Symlink(outside+"/file", w.dir+"/d/file")
			_ = os.RemoveAll(w.dir + "/d")
			_ = os.Symlink(outside, w.dir+"/d")
		}
	}()
	for range 200 {
		if got, _, err := w.get("d/file"); err == nil && strings.Contains(string(got), "outside") {
			t.Fatalf("read %q", got)
		}
		_, _ = w.put("d/file", []byte("written"))
	}
	close(over)
	<-swapping
	if got, err := os.ReadFile(outside + "/file"); string(got) != "outside" {
		t.Errorf("outside is %q, %v", got, err)
	}
	if list, err := os.ReadDir(outside); len(list) != 1 {
		t.Errorf("outside has %v, %v", list, err)
	}
}

package output_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	kept "toolcall.dev/operator/controllers/output"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/store"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/testing/fixture"
)

// storing is an operator that has an output store, in a folder.
type storing struct {
	*fixture.World
	folder string
	isAway bool
	store  *store.Store
	// done has the calls whose streams are stored or lost.
	done chan types.NamespacedName
}

func newStoring(t *testing.T) *storing {
	s := &storing{World: fixture.NewWorld(t), folder: filepath.Join(t.TempDir(), "output"), done: make(chan types.NamespacedName, 100)}
	if err := os.Mkdir(s.folder, 0o700); err != nil {
		t.Fatal(err)
	}
	s.begin()
	t.Cleanup(s.end)
	return s
}

func (s *storing) begin() {
	s.T.Helper()
	location, err := store.ParseLocation("file://" + s.folder)
	if err != nil {
		s.T.Fatal(err)
	}
	if s.isAway {
		// A folder has to be there when it is opened, unlike a service.
		s.move(false)
		defer s.move(true)
	}
	if s.store, err = store.Open(context.Background(), location, nil); err != nil {
		s.T.Fatal(err)
	}
	s.Outputs = kept.NewOutputs(s.store, s.Hub, 10*time.Millisecond, func(call types.NamespacedName) { s.done <- call }, logr.Discard())
	s.Rebuild()
}

// reconcile runs one pass of each of the two controllers that look after a call's output, and returns when the next is due.
func (s *storing) reconcile(call *v1alpha1.ToolCall) ctrl.Result {
	s.T.Helper()
	result := s.World.Reconcile(call)
	after, err := s.reconcileOutput(call)
	if err != nil {
		s.T.Fatalf("look after the output of %s: %v", call.Name, err)
	}
	if after.RequeueAfter == 0 || result.RequeueAfter > 0 && result.RequeueAfter < after.RequeueAfter {
		return result
	}
	return after
}

// reconcileOutput runs one pass of the controller of output, and of that of calls if it is told to.
func (s *storing) reconcileOutput(call *v1alpha1.ToolCall) (ctrl.Result, error) {
	isDone := false
	r := &kept.Reconciler{
		Client: s.Reconciler.Client, Objects: s.Reconciler.Objects, Clock: s.Clock, Hub: s.Hub, Outputs: s.Outputs, Sessions: s.Reconciler.Sessions,
		Done: func(types.NamespacedName) { isDone = true }, Warn: s.Reconciler.Tell,
	}
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)}
	result, err := r.Reconcile(s.T.Context(), request)
	if err == nil && isDone {
		_, err = s.Reconciler.Reconcile(s.T.Context(), request)
	}
	return result, err
}

func (s *storing) end() {
	_ = s.store.Close()
	s.Outputs.Close()
}

// crash ends the operator, and starts another.
func (s *storing) crash() {
	s.T.Helper()
	s.end()
	s.done = make(chan types.NamespacedName, 100)
	s.Restart()
	s.begin()
}

// away has the store fail, until what it returns is called.
func (s *storing) away() (back func()) {
	s.T.Helper()
	s.move(true)
	return func() { s.T.Helper(); s.move(false) }
}

// move has a file stand in the folder's place, or the folder in the file's, with no moment in which there is neither.
func (s *storing) move(away bool) {
	s.T.Helper()
	aside, err := s.folder+"-aside", error(nil)
	if away {
		err = os.WriteFile(aside, nil, 0o600)
	}
	err = errors.Join(err, unix.Renameat2(unix.AT_FDCWD, s.folder, unix.AT_FDCWD, aside, unix.RENAME_EXCHANGE))
	if !away {
		err = errors.Join(err, os.Remove(aside))
	}
	if err != nil {
		s.T.Fatal(err)
	}
	s.isAway = away
}

// objects are how many the store has. What is being written has a temporary name.
func (s *storing) objects() (n int) {
	_ = filepath.WalkDir(s.folder, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !strings.HasSuffix(e.Name(), ".tmp") {
			n++
		}
		return nil
	})
	return n
}

func (s *storing) key(call *v1alpha1.ToolCall, stream output.Stream) output.Key {
	return output.Key{Namespace: call.Namespace, Name: call.Name, UID: call.UID, Stream: stream}
}

// isStored says that the store has a stream, exactly.
func (s *storing) isStored(call *v1alpha1.ToolCall, stream output.Stream, want []byte) bool {
	s.T.Helper()
	return s.has(s.key(call, stream), want)
}

func (s *storing) has(key output.Key, want []byte) bool {
	s.T.Helper()
	r, err := s.store.Open(context.Background(), key)
	if err != nil {
		return false
	}
	defer r.Close()
	got, p := []byte{}, make([]byte, 1<<20)
	for {
		n, err := r.ReadAt(context.Background(), p, int64(len(got)))
		got = append(got, p[:n]...)
		if err != nil {
			return errors.Is(err, io.EOF) && bytes.Equal(got, want)
		}
	}
}

// settle reconciles a call until its stream is stored or lost.
func (s *storing) settle(call *v1alpha1.ToolCall) {
	s.T.Helper()
	fixture.Eventually(s.T, func() bool {
		s.reconcile(call)
		status := s.Get(call).Status
		return status.Streams != nil && status.Streams.Stdout.State != "" && status.Streams.Stdout.State != v1alpha1.StreamStoring
	})
}

// keptPod is what keeps the output of a call, and answers for it.
type keptPod struct {
	*fixture.Runner
	// streams are what it wrote, by stream, and what was collected, by path.
	streams map[string][]byte
	// running says that the process may write more, forgotten that the output isn't there any more.
	running, forgotten bool
	// heard has all other messages.
	heard chan *wire.Message
}

func noise(seed uint64, n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(data)
	for i := range data {
		data[i] = 'a' + data[i]%26
	}
	return data
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// serve answers on the connection of now.
func (p *keptPod) serve() {
	conn, heard := p.Conn, make(chan *wire.Message, 100)
	p.heard = heard
	// What the test changes afterwards is for the next connection.
	now := &keptPod{streams: maps.Clone(p.streams), running: p.running, forgotten: p.forgotten}
	go func() {
		defer close(heard)
		for {
			m, err := conn.Receive()
			if err != nil {
				return
			}
			switch {
			case m.Read != nil && (!now.running || !m.Read.Follow):
				for _, d := range now.answer(m.Read) {
					_ = conn.Send(&wire.Message{Data: d})
				}
			case m.Read == nil && m.CancelRead == nil && m.Pong == nil:
				heard <- m
			}
		}
	}()
}

func (p *keptPod) answer(m *wire.ReadOutput) (frames []*wire.Data) {
	data := p.streams[cmp.Or(m.Stream, m.Artifact)]
	if p.forgotten {
		return []*wire.Data{{ID: m.ID, Offset: m.Offset, End: true, Unknown: true}}
	}
	left := data[min(m.Offset, int64(len(data))):]
	left = left[:min(m.Max, len(left))]
	for at := m.Offset; ; {
		d := &wire.Data{ID: m.ID, Offset: at, Total: int64(len(data)), Complete: !p.running}
		if !p.running {
			d.SHA256 = hashOf(data)
		}
		d.Bytes = min(len(left), wire.MaxPayload)
		d.Payload, left = left[:d.Bytes], left[d.Bytes:]
		at += int64(d.Bytes)
		d.End = len(left) == 0
		frames = append(frames, d)
		if d.End {
			return frames
		}
	}
}

// outcome is that of a command which wrote this.
func (p *keptPod) outcome() result.Outcome {
	o := fixture.Completed
	o.Stdout, o.Stderr = shortened(p.streams[wire.Stdout]), shortened(p.streams[wire.Stderr])
	for _, path := range slices.Sorted(maps.Keys(p.streams)) {
		if data := p.streams[path]; path != wire.Stdout && path != wire.Stderr {
			if o.Artifacts == nil {
				o.Artifacts = &result.Artifacts{}
			}
			o.Artifacts.Kept = append(o.Artifacts.Kept, result.Artifact{Path: path, Bytes: int64(len(data)), SHA256: hashOf(data), MediaType: "text/plain"})
		}
	}
	return o
}

func shortened(data []byte) result.Stream {
	s := result.Stream{Head: data, Bytes: int64(len(data)), SHA256: hashOf(data)}
	if half := 8 << 10; len(data) > 2*half {
		s.Head, s.Tail = data[:half], data[len(data)-half:]
	}
	return s
}

// runs is a call that a pod has which wrote something.
func (s *storing) runs(name string, stdout, stderr []byte) (*v1alpha1.ToolCall, *keptPod) {
	s.T.Helper()
	call := s.Call(name)
	s.Accept(call)
	p := &keptPod{Runner: s.Start(call), streams: map[string][]byte{wire.Stdout: stdout, wire.Stderr: stderr}}
	return call, p
}

// ends is such a call whose result has come.
func (s *storing) ends(name string, stdout, stderr []byte) (*v1alpha1.ToolCall, *keptPod) {
	s.T.Helper()
	call, p := s.runs(name, stdout, stderr)
	p.serve()
	p.Report(s.World, call.UID, p.outcome())
	return call, p
}

// endsWithoutItsStore is a call that has ended without all of its output being stored: the store is away.
func (s *storing) endsWithoutItsStore(stdout []byte) (*v1alpha1.ToolCall, *keptPod) {
	s.T.Helper()
	call, p := s.ends("c", stdout, nil)
	s.reconcile(call)
	s.Clock.Set(s.Clock.Now().Add(2 * time.Second))
	s.reconcile(call)
	return call, p
}

// comesBack connects a pod again, which sends its result again.
func (p *keptPod) comesBack(s *storing, call *v1alpha1.ToolCall) {
	p.Conn.Close()
	p.Connect(s.World, string(call.UID))
	p.serve()
	p.Report(s.World, call.UID, p.outcome())
}

// isAcked says whether the runner may go.
func (p *keptPod) isAcked() bool {
	select {
	case m := <-p.heard:
		if m == nil || m.Ack == nil {
			p.T.Errorf("the runner got %+v", m)
		}
		return true
	default:
		return false
	}
}

func (p *keptPod) expectAck() {
	p.T.Helper()
	fixture.Eventually(p.T, p.isAcked)
}

// statusWrites is a client that counts the writes of statuses.
type statusWrites struct {
	client.Client
	n int
}

// Status counts.
func (c *statusWrites) Status() client.SubResourceWriter {
	c.n++
	return c.Client.Status()
}

package subresources_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/store"
	"toolcall.dev/operator/internal/testing/apitest"
)

// asked is a source that counts how often it is asked, and may be away.
type asked struct {
	output.Source
	times int
	away  bool
}

// Open counts.
func (a *asked) Open(ctx context.Context, key output.Key) (output.Reader, error) {
	a.times++
	if a.away {
		return nil, errors.New("the store is away")
	}
	return a.Source.Open(ctx, key)
}

// newStore is an output store that has stdout of a call.
func newStore(t *testing.T, call *v1alpha1.ToolCall, data []byte) *asked {
	t.Helper()
	location, err := store.ParseLocation("file://" + t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	kept, err := store.Open(t.Context(), location, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() })
	source := apitest.NewStreams()
	out := source.Add(call, output.Stdout)
	_, _ = out.Write(data)
	out.Finish()
	key := output.Key{Namespace: call.Namespace, Name: call.Name, UID: call.UID, Stream: output.Stdout}
	reader, err := source.Open(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := kept.Keep(t.Context(), key, reader, 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	<-writer.Done()
	return &asked{Source: kept}
}

func TestStoredOutputNeedsNoLeader(t *testing.T) {
	s := newSpace(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	call := s.create(s.admin, "call", "")
	kept := newStore(t, call, data)
	other := s.start(nil, s.follower(1, nil), kept)
	s.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning})
	status := statusOf(t, other.expect("call", "", http.StatusServiceUnavailable))
	if !strings.Contains(status.Message, "leader") || status.Details.RetryAfterSeconds < 1 || kept.times > 0 {
		t.Errorf("while it runs: %+v; the store was asked %d times", status, kept.times)
	}
	ended := v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseSucceeded, Stdout: "x", Streams: &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{
		Bytes: int64(len(data)), SHA256: sum(data), Truncated: true, State: v1alpha1.StreamComplete, Kept: ptr.To(int64(len(data))),
	}}}
	s.setStatus(call, ended)
	if got := body(t, other.expect("call", "", http.StatusOK)); !bytes.Equal(got, data) {
		t.Errorf("%d bytes", len(got))
	}
	if got := string(body(t, other.expect("call", "offset=1000005&limit=8", http.StatusOK))); got != "56789abc" {
		t.Errorf("%q", got)
	}
	kept.away = true
	if status := statusOf(t, other.expect("call", "", http.StatusServiceUnavailable)); status.Details.RetryAfterSeconds < 1 {
		t.Errorf("without the store: %+v", status)
	}
	// The leader is connected to the session's runner, which may have it still.
	source := apitest.NewStreams()
	out := source.Add(call, output.Stdout)
	_, _ = out.Write(data)
	out.Finish()
	leader := s.startLeader(source)
	other = s.start(nil, s.follower(leader.port, nil), kept)
	s.lease("127.0.0.1")
	if got := body(t, other.expect("call", "", http.StatusOK)); !bytes.Equal(got, data) {
		t.Errorf("without the store, of the leader: %d bytes", len(got))
	}
}

// A store that is away is nothing to those who need nothing of it.
func TestTheStoreIsNotAskedInVain(t *testing.T) {
	s := newSpace(t)
	call := s.create(s.admin, "call", "")
	kept := newStore(t, call, []byte("stored"))
	kept.away = true
	here := s.start(nil, nil, kept)
	if r := here.expect("call", "follow=true&limit=1", http.StatusOK); r.Header.Get("Toolcall-Complete") != "false" {
		t.Error("a call that hasn't started is complete")
	}
	for name, test := range map[string]struct {
		stream v1alpha1.StreamStatus
		code   int
	}{
		"all of it is in the status": {v1alpha1.StreamStatus{Bytes: 3, SHA256: sum([]byte("abc"))}, http.StatusOK},
		"nothing is to be stored":    {v1alpha1.StreamStatus{Bytes: 100, SHA256: sum(nil), Truncated: true}, http.StatusGone},
		"nothing is stored":          {v1alpha1.StreamStatus{Bytes: 100, SHA256: sum(nil), Truncated: true, State: v1alpha1.StreamLost, Kept: ptr.To[int64](0)}, http.StatusGone},
	} {
		s.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Stdout: "abc", Streams: &v1alpha1.StreamsStatus{Stdout: test.stream}})
		if here.expect("call", "", test.code); kept.times > 0 {
			t.Errorf("%s, and the store is asked", name)
		}
	}
}

// Whoever can write into the bucket can write hashes that fit. The status has the one that the runner sent.
func TestStoredOutputIsThatOfTheStatus(t *testing.T) {
	s := newSpace(t)
	call := s.create(s.admin, "call", "")
	here := s.start(nil, nil, newStore(t, call, []byte("forged")))
	for name, stream := range map[string]v1alpha1.StreamStatus{
		"another hash":   {Bytes: 6, SHA256: sum([]byte("stored"))},
		"another length": {Bytes: 7, SHA256: sum([]byte("forged"))},
	} {
		stream.Truncated, stream.State, stream.Kept = true, v1alpha1.StreamComplete, ptr.To(stream.Bytes)
		s.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Streams: &v1alpha1.StreamsStatus{Stdout: stream}})
		if got := body(t, here.expect("call", "", http.StatusGone)); bytes.Contains(got, []byte("forged")) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Of a stream that was lost with its pod, the store has the beginning.
func TestTheBeginningOfALostStreamIsRead(t *testing.T) {
	s := newSpace(t)
	call := s.create(s.admin, "call", "")
	here := s.start(nil, nil, newStore(t, call, []byte("beginning")))
	lost := v1alpha1.StreamStatus{Bytes: 1000, SHA256: sum([]byte("all of it")), Truncated: true, State: v1alpha1.StreamLost, Kept: ptr.To[int64](9)}
	s.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Streams: &v1alpha1.StreamsStatus{Stdout: lost}})
	if got := string(body(t, here.expect("call", "", http.StatusOK))); got != "beginning" {
		t.Errorf("got %q", got)
	}
}

// While a stream is on its way to the store, its runner may be away for a moment: nothing of it is lost.
func TestAStreamThatIsBeingStoredIsNotSaidToBeLost(t *testing.T) {
	s := newSpace(t)
	call := s.create(s.admin, "call", "")
	here := s.start(nil, nil, newStore(t, s.create(s.admin, "another", ""), []byte("x")))
	storing := v1alpha1.StreamStatus{Bytes: 100, SHA256: sum(nil), Truncated: true, State: v1alpha1.StreamStoring, Kept: ptr.To[int64](10)}
	s.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseSucceeded, Stdout: "beginning", Streams: &v1alpha1.StreamsStatus{Stdout: storing}})
	for _, query := range []string{"", "offset=50", "follow=true&offset=50"} {
		status := statusOf(t, here.expect("call", query, http.StatusServiceUnavailable))
		if !strings.Contains(status.Message, "being stored") || status.Details.RetryAfterSeconds < 1 {
			t.Errorf("%q: %+v", query, status)
		}
	}
}

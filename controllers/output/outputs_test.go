package output

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/store"
)

// newOutputs are those of a store in a folder, whose runners aren't connected.
func newOutputs(t *testing.T) *Outputs {
	t.Helper()
	location, err := store.ParseLocation("file://" + t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	kept, err := store.Open(t.Context(), location, nil)
	if err != nil {
		t.Fatal(err)
	}
	hub := dispatch.NewHub(func(*dispatch.Runner, dispatch.News) {})
	o := NewOutputs(kept, hub, GrowthPause, func(types.NamespacedName) {}, logr.Discard())
	t.Cleanup(func() {
		o.Close()
		_ = kept.Close()
	})
	return o
}

func ofCall(namespace string, n int) Of {
	return Of{
		Call: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("c", n)}, UID: types.UID(fmt.Sprint(namespace, "-", n)),
		KeyHash: "k", StatusBytes: 1, KeepBytes: 100,
	}
}

// connected is a stream of a runner that is there.
type connected struct{ output.Reader }

func (connected) ReadAt(_ context.Context, p []byte, _ int64) (int, error) { return len(p), nil }

func (connected) Wait(context.Context, int64) error { return nil }

// Otherwise the writer of a session's call would go on for as long as the store is away, and then store what the status calls lost.
func TestWhatIsGivenUpIsReadNoMore(t *testing.T) {
	t.Parallel()
	s := newRunnerStream(dispatch.NewHub(func(*dispatch.Runner, dispatch.News) {}), output.Key{}, "k")
	s.reader = connected{}
	read := func() error {
		_, err := s.ReadAt(t.Context(), make([]byte, 1), 0)
		return errors.Join(err, s.Wait(t.Context(), 1))
	}
	if err := read(); err != nil {
		t.Error(err)
	}
	if s.lose(); !errors.Is(read(), output.ErrNotFound) {
		t.Errorf("it is read: %v", read())
	}
}

func TestANamespaceLeavesPlacesForOthers(t *testing.T) {
	o := newOutputs(t)
	now := time.Unix(1, 0)
	greedy := map[store.State]int{}
	var waiting Of
	for n := range maxStoringOfNamespace/100 + 2 {
		of := ofCall("greedy", n)
		var keys []output.Key
		for a := range 100 {
			key := of.key("")
			key.Artifact = fmt.Sprint(a)
			keys = append(keys, key)
		}
		states, _ := o.Finish(of, keys, now, false)
		for _, s := range states {
			greedy[s.State]++
		}
		waiting = of
	}
	if greedy[store.Lost] > 0 || o.Storing() > maxStoringOfNamespace {
		t.Errorf("of the greedy namespace are %v, and %d are stored at once", greedy, o.Storing())
	}
	of := ofCall("other", 0)
	key := of.key(output.Stdout)
	if o.Finish(of, []output.Key{key}, now, false); o.calls[of.Call].streams[key] == nil {
		t.Error("the stream of another namespace waits")
	}
	key = waiting.key("")
	key.Artifact = "late"
	// An operator before this one may have stored it, which is asked in its turn.
	if states, _ := o.Finish(waiting, []output.Key{key}, now, true); states[key].State != store.Storing {
		t.Errorf("what waits when its pod is gone is %+v", states[key])
	}
}

func TestTheTextForAModelPromisesNothingThatIsLost(t *testing.T) {
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "call"}}
	of := Of{Call: types.NamespacedName{Namespace: "ns", Name: "call"}, KeyHash: "k"}
	for name, c := range map[string]struct {
		kept int64
		want bool
	}{"nothing is kept": {0, false}, "the beginning is": {10, true}} {
		s := &v1alpha1.ToolCallStatus{Output: "first and last part\n\nTook 1.0s"}
		s.Streams = &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: 5 << 20, Truncated: true}}
		key := of.key(output.Stdout)
		of.SetStored(s, 1, time.Unix(1, 0), map[output.Key]store.Status{key: {State: store.Storing}})
		of.AddHints(call, s)
		hinted := s.Output
		of.SetStored(s, 1, time.Unix(2, 0), map[output.Key]store.Status{key: {State: store.Lost, Kept: c.kept}})
		of.dropHints(call, s)
		if want := map[bool]string{true: hinted, false: "first and last part\n\nTook 1.0s"}[c.want]; s.Output != want {
			t.Errorf("%s: %q", name, s.Output)
		}
	}
}

// The store is blamed for its own failures only.
func TestTheStoreIsSaidToFailOnlyWhereItDoes(t *testing.T) {
	o := newOutputs(t)
	of, busy := ofCall("ns", 1), ofCall("busy", 1)
	wanted := func(of Of) []output.Key { return []output.Key{of.key(output.Stdout)} }
	runnerAway, _ := o.Finish(of, wanted(of), time.Unix(1, 0), false)
	for runnerAway[of.key(output.Stdout)].Err == nil {
		runnerAway, _ = o.Finish(of, wanted(of), time.Unix(1, 0), false)
	}
	if _, ok := o.places.Acquire(maxStoringOfNamespace, "busy"); !ok {
		t.Fatal("the places aren't free")
	}
	noPlace, _ := o.Finish(busy, wanted(busy), time.Unix(1, 0), false)
	isFull := map[output.Key]store.Status{of.key(output.Stdout): {State: store.Storing, Err: errors.New("full")}}
	for name, c := range map[string]struct {
		of     Of
		states map[output.Key]store.Status
		want   string
	}{
		"the runner isn't connected":  {of, runnerAway, v1alpha1.ReasonOutputBeingStored},
		"all places are taken":        {busy, noPlace, v1alpha1.ReasonOutputBeingStored},
		"the store doesn't take more": {of, isFull, v1alpha1.ReasonOutputStoreFailing},
	} {
		s := &v1alpha1.ToolCallStatus{Streams: &v1alpha1.StreamsStatus{}}
		c.of.SetStored(s, 1, time.Unix(1, 0), c.states)
		if got := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionOutputStored); got == nil || got.Reason != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// What was lost while the command ran is tried again when it has ended.
func TestWhatWasLostBeforeTheEndIsTriedAgain(t *testing.T) {
	o := newOutputs(t)
	of, now := ofCall("ns", 1), time.Unix(1, 0)
	key := of.key(output.Stdout)
	o.mu.Lock()
	o.enter(of).streams[key] = &keptStream{err: errNoStore}
	o.mu.Unlock()
	for _, at := range []time.Time{now, now.Add(time.Second)} {
		states, since := o.Finish(of, []output.Key{key}, at, false)
		if states[key].State != store.Storing || !since.Equal(now) {
			t.Errorf("after its end it is %+v since %s", states[key], since)
		}
	}
}

func TestWhatTheStatusHasNotByteForByteIsStored(t *testing.T) {
	for name, c := range map[string]struct {
		stream v1alpha1.StreamStatus
		keep   int64
		want   bool
	}{
		"all is there":          {v1alpha1.StreamStatus{Bytes: 5}, 100, false},
		"it is shortened":       {v1alpha1.StreamStatus{Bytes: 5000, Truncated: true}, 100, true},
		"the status has more":   {v1alpha1.StreamStatus{Bytes: 5000, Truncated: true}, 40, false},
		"it isn't UTF-8":        {v1alpha1.StreamStatus{Bytes: 5, InvalidUTF8: true}, 100, true},
		"nothing is to be kept": {v1alpha1.StreamStatus{Bytes: 5, InvalidUTF8: true}, 0, false},
	} {
		part := storedPart{stream: &c.stream}
		if got := part.isWanted(&Of{KeepBytes: c.keep, StatusBytes: 50, KeyHash: "k"}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

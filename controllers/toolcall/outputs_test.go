package toolcall

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
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
	o := NewOutputs(OutputsOptions{
		Store: kept, Hub: dispatch.NewHub(func(*dispatch.Session) {}), Log: logr.Discard(), Wake: func(types.NamespacedName) {},
	})
	t.Cleanup(func() {
		o.Close()
		_ = kept.Close()
	})
	return o
}

func outputOfCall(namespace string, n int) outputOf {
	return outputOf{
		call: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("c", n)}, uid: types.UID(fmt.Sprint(namespace, "-", n)),
		keyHash: "k", statusBytes: 1, keepBytes: 100,
	}
}

func TestANamespaceLeavesPlacesForOthers(t *testing.T) {
	o := newOutputs(t)
	now := time.Unix(1, 0)
	greedy := map[store.State]int{}
	var waiting outputOf
	for n := range maxStoringOfNamespace/100 + 2 {
		of := outputOfCall("greedy", n)
		var keys []output.Key
		for a := range 100 {
			key := of.key("")
			key.Artifact = fmt.Sprint(a)
			keys = append(keys, key)
		}
		states, _ := o.finish(of, keys, now, false)
		for _, s := range states {
			greedy[s.State]++
		}
		waiting = of
	}
	if greedy[store.Lost] > 0 || o.Storing() > maxStoringOfNamespace {
		t.Errorf("of the greedy namespace are %v, and %d are stored at once", greedy, o.Storing())
	}
	of := outputOfCall("other", 0)
	key := of.key(output.Stdout)
	if o.finish(of, []output.Key{key}, now, false); o.calls[of.call].streams[key] == nil {
		t.Error("the stream of another namespace waits")
	}
	key = waiting.key("")
	key.Artifact = "late"
	if states, _ := o.finish(waiting, []output.Key{key}, now, true); states[key].State != store.Lost {
		t.Errorf("what waits when its pod is gone is %+v", states[key])
	}
}

// The end was written by somebody else, or the answer to the write was lost.
func TestACallThatHasEndedIsNotWatched(t *testing.T) {
	c := newCluster(t)
	o := newOutputs(t)
	c.Outputs = o
	of := observed(bound).outputOf()
	of.statusBytes, of.keepBytes = 1, 100
	o.watch(of)
	c.handled(t, Finished, observed(bound, func(ob *observation) { ob.call.Status = *ob.fail("NonZeroExit", "x") }))
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.calls) != 0 {
		t.Errorf("%d calls are still watched", len(o.calls))
	}
}

func TestTheTextForAModelPromisesNothingThatIsLost(t *testing.T) {
	ob := observed(bound)
	for name, c := range map[string]struct {
		kept int64
		want bool
	}{"nothing is kept": {0, false}, "the beginning is": {10, true}} {
		s := ob.fail("NonZeroExit", "x")
		s.Output = "first and last part\n\nTook 1.0s"
		s.Streams = &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: 5 << 20, Truncated: true}}
		of := ob.outputOf()
		key := of.key(output.Stdout)
		ob.setStored(s, map[output.Key]store.Status{key: {State: store.Storing}})
		addHints(ob.call, s)
		hinted := s.Output
		ob.setStored(s, map[output.Key]store.Status{key: {State: store.Lost, Kept: c.kept}})
		dropHints(ob.call, s)
		if want := map[bool]string{true: hinted, false: "first and last part\n\nTook 1.0s"}[c.want]; s.Output != want {
			t.Errorf("%s: %q", name, s.Output)
		}
	}
}

// Without an output store, a session's pod has the rest, for a while.
func TestTheTextForAModelSaysWhatTheSessionsPodStillHas(t *testing.T) {
	inSession := func(ob *observation) { ob.call.Spec.SessionRef = &v1alpha1.SessionReference{Name: "s"} }
	keeps := func(ob *observation) { ob.decision.KeepBytesPerStream = 8 << 20 }
	for name, c := range map[string]struct {
		changes   []change
		truncated bool
		isGone    bool
		want      bool
	}{
		"a call of a session":                   {[]change{bound, inSession, keeps}, true, false, true},
		"a call without a session":              {[]change{bound, keeps}, true, false, false},
		"a policy that keeps nothing":           {[]change{bound, inSession}, true, false, false},
		"a pod that is gone":                    {[]change{bound, inSession, keeps}, true, true, false},
		"a stream of which the status has all":  {[]change{bound, inSession, keeps}, false, false, false},
		"a call whose runner was never settled": {[]change{inSession}, true, false, false},
	} {
		ob := observed(c.changes...)
		s := ob.fail("NonZeroExit", "x")
		s.Output = "first and last part\n\nTook 1.0s"
		s.Streams = &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: 5 << 20, Truncated: c.truncated}}
		if left := (&Reconciler{}).storeOutput(ob, s, c.isGone); left != 0 {
			t.Errorf("%s: its end waits for %s", name, left)
		}
		has := strings.Contains(s.Output, "\n\nWhile the session's pod has it: More of stdout (5242880 bytes in all): kubectl toolcall logs call -n ns --stream stdout") && strings.HasSuffix(s.Output, "\n\nTook 1.0s")
		if has != c.want || !c.want && s.Output != "first and last part\n\nTook 1.0s" {
			t.Errorf("%s: %q", name, s.Output)
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
		if got := part.isWanted(&outputOf{keepBytes: c.keep, statusBytes: 50, keyHash: "k"}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

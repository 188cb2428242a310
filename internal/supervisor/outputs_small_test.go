package supervisor

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"toolcall.dev/operator/internal/output/kept"
)

// A session may have a hundred calls a second while the store takes the output of one.
func TestSmallCallsLeaveTheOutputOfLargeOnes(t *testing.T) {
	o := NewOutputs()
	limits := kept.Limits{Memory: 100, Disk: 8 << 20, Dir: t.TempDir()}
	run := func(uid string, n int) {
		o.begin(uid)
		stdout, stderr := kept.New(limits), kept.New(limits)
		o.Set(uid, stdout, stderr)
		if _, err := stdout.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		stdout.Finish(true, time.Minute)
		stderr.Finish(true, time.Minute)
		o.end(uid)
	}
	run("large", 5<<20)
	for n := range 3 * maxEndedCalls {
		run(fmt.Sprint("small-", n), n%50)
	}
	if o.get("large") == nil || len(o.ended) != maxEndedCalls {
		t.Errorf("%d calls are kept, the large one: %v", len(o.ended), o.get("large") != nil)
	}
	if o.get(fmt.Sprint("small-", 3*maxEndedCalls-1)) == nil {
		t.Error("the last call's output isn't kept")
	}
}

// stored is a stream in a file.
type stored struct {
	kept.Output
	bytes     int64
	isDropped bool
}

func (s *stored) Shrink() (memory, disk int64) { return 0, s.bytes }
func (s *stored) Drop()                        { s.isDropped = true }

// The runner doesn't know what of it the output store has by now.
func TestTheOldestOutputGoesWhenAllTakesTooMuchOfTheDisk(t *testing.T) {
	t.Parallel()
	o := NewOutputs()
	run := func(uid string, bytes int64) *stored {
		o.begin(uid)
		stdout := &stored{bytes: bytes}
		o.Set(uid, stdout, &stored{})
		o.end(uid)
		return stdout
	}
	var all []*stored
	for n := range 5 {
		all = append(all, run(fmt.Sprint(n), 100<<20))
	}
	small := run("small", 0)
	all = append(all, run("5", 2<<30))
	if small.isDropped || o.get("small") == nil {
		t.Error("what takes nothing of the disk was dropped for what takes too much of it")
	}
	for n, s := range all {
		isThere := o.get(fmt.Sprint(n)) != nil
		if want := n == 5; isThere != want || s.isDropped == want {
			t.Errorf("call %d: there is %v, dropped %v", n, isThere, s.isDropped)
		}
	}
	all = []*stored{run("6", 1), run("7", 200<<20), run("8", 56<<20-1), run("9", 1)}
	if got := slices.IndexFunc(all, func(s *stored) bool { return !s.isDropped }); got != 1 || o.disk != maxEndedDisk {
		t.Errorf("the oldest that is there is number %d, and they take %d bytes", got, o.disk)
	}
}

package supervisor

import (
	"fmt"
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

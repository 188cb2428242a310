package runner

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"toolcall.dev/operator/internal/result"
)

// container says how much memory is in use.
type container struct {
	limit, used, needed int64
	// looked counts how often the files were left out.
	looked int
}

func (c *container) Limit() (int64, bool) { return c.limit, c.limit > 0 }

func (c *container) Used() int64 { return c.used }

func (c *container) Needed() int64 {
	c.looked++
	return c.needed
}

func TestWhenTheMemoryIsLookedAt(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		memory     container
		isExceeded bool
		next       time.Duration
		looked     int
	}{
		"no limit":            {container{used: 1 << 40}, false, limitLook, 0},
		"far from the limit":  {container{limit: 8 << 30, used: 1 << 30}, false, maxLook, 0},
		"near the limit":      {container{limit: 1000 * mib, used: 930 * mib}, false, 4882812 * time.Nanosecond, 0},
		"at the limit":        {container{limit: 1000 * mib, used: 950 * mib, needed: 950 * mib}, true, minLook, 1},
		"full of files":       {container{limit: 1000 * mib, used: 1000 * mib, needed: 100 * mib}, false, maxLook, 1},
		"full, and also used": {container{limit: 1000 * mib, used: 1000 * mib, needed: 949 * mib}, false, minLook, 1},
	} {
		_, isExceeded, next := lookAtMemory(&c.memory)
		if isExceeded != c.isExceeded || next != c.next || c.memory.looked != c.looked {
			t.Errorf("%s: exceeded %v, the next look comes after %s, looked into files %d times", name, isExceeded, next, c.memory.looked)
		}
	}
}

// filling is a container that is full once a file is there.
type filling struct {
	file   string
	looked atomic.Bool
}

func (f *filling) Limit() (int64, bool) { return 1 << 30, true }

func (f *filling) Used() int64 {
	f.looked.Store(true)
	if _, err := os.Stat(f.file); err != nil {
		return 1
	}
	return 1 << 30
}

func (f *filling) Needed() int64 { return f.Used() }

func TestACommandIsEndedBeforeTheKernelEndsItsContainer(t *testing.T) {
	f := &filling{file: filepath.Join(t.TempDir(), "full")}
	ctx, stop := withinMemory(t.Context(), f)
	defer stop()
	o := runIt(t, ctx, bash("echo before; trap '' TERM; >"+f.file+"; while :; do sleep 600; done"))
	before := "before\n"
	want{reason: result.OOMKilled, signal: "SIGKILL", stdout: &before}.check(t, o)
	if o.Message != nearlyOutOfMemory.Message {
		t.Errorf("the message is %q", o.Message)
	}
}

func TestACommandThatNeedsLittleMemoryIsLeftAlone(t *testing.T) {
	f := &filling{file: "/nowhere"}
	ctx, stop := withinMemory(t.Context(), f)
	completed("fine\n", "").check(t, runIt(t, ctx, bash("echo fine")))
	stop()
	if !f.looked.Load() || ctx.Err() == nil {
		t.Errorf("the watch looked: %v; it has ended: %v", f.looked.Load(), ctx.Err())
	}
}

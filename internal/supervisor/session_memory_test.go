package supervisor_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/supervisor"
)

// heap is what is in use after everything that is not was freed.
func heap() (bytes, objects int64) {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), int64(m.HeapObjects)
}

// A runner remembers the UIDs of its calls and nothing else of them.
func TestARunnerStaysSmallAfterTenThousandCalls(t *testing.T) {
	const calls, maxBytes, maxObjects = 10_000, 1 << 20, 2_000
	many := theSession
	many.MaxCalls = calls + 100
	b := start(t, many, func(b *bench) {
		b.Begin = func(*wire.Begin) supervisor.ExecuteFunc {
			return func(_ context.Context, a *wire.Assignment) *wire.Result {
				return &wire.Result{CallUID: a.CallUID, Outcome: result.Outcome{
					Reason: result.Completed, Started: true, ExitCode: result.Exit(0), Stdout: result.Stream{Head: make([]byte, 4<<10)},
				}}
			}
		}
	})
	p, _ := b.connect()
	p.in <- begin(many)
	next := 0
	run := func(n int) {
		for range n {
			uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", next)
			next++
			p.in <- assigned(uid, func(a *wire.Assignment) {
				a.Stdin, a.Decision = make([]byte, 4<<10), strings.Repeat("d", 4<<10)
			})
			for m := range p.out {
				if m.Result != nil && m.Result.CallUID == uid {
					break
				}
			}
			p.in <- ack(uid)
		}
	}
	run(100)
	bytes, objects := heap()
	run(calls)
	bytesAfter, objectsAfter := heap()
	t.Logf("grown by %d bytes and %d objects", bytesAfter-bytes, objectsAfter-objects)
	if bytesAfter-bytes > maxBytes || objectsAfter-objects > maxObjects {
		t.Errorf("grown by %d bytes and %d objects", bytesAfter-bytes, objectsAfter-objects)
	}
	p.in <- ended("EndRequested")
	b.wantExit()
	b.cancel()
	b.terminate()
}

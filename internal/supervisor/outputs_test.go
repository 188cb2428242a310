package supervisor_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/supervisor"
)

// writer is a command of the test that writes what the test says.
type writer struct {
	stdout, stderr *kept.Stream
	over           chan struct{}
}

// readBench is a supervisor of one call whose output the test writes.
type readBench struct {
	*bench
	writers chan *writer
}

// writing has the calls of a supervisor write what the test says.
func writing(s *supervisor.Supervisor, limits kept.Limits) chan *writer {
	calls := make(chan *writer, 64)
	s.Outputs = supervisor.NewOutputs()
	s.Begin = func(*wire.Begin) supervisor.ExecuteFunc {
		return func(_ context.Context, a *wire.Assignment) *wire.Result {
			if a.CallName == "name-never" {
				return &wire.Result{CallUID: a.CallUID, Outcome: result.Outcome{Reason: result.CommandNotFound}}
			}
			w := &writer{stdout: kept.New(limits), stderr: kept.New(limits), over: make(chan struct{})}
			s.Outputs.Set(a.CallUID, w.stdout, w.stderr)
			calls <- w
			<-w.over
			w.stdout.Finish(true, time.Minute)
			w.stderr.Finish(true, time.Minute)
			return &wire.Result{CallUID: a.CallUID, Outcome: result.Outcome{Reason: result.Completed}}
		}
	}
	return calls
}

// reading runs a test with a connected runner.
func reading(t *testing.T, test func(t *testing.T, b *readBench, p *pipe)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &readBench{}
		b.bench = start(t, theCall, func(own *bench) {
			b.writers = writing(own.Supervisor, kept.Limits{Memory: 100, Disk: 1 << 20, Dir: t.TempDir()})
		})
		p, _ := b.connect()
		p.in <- begin(theCall)
		synctest.Wait()
		test(t, b, p)
		b.stop()
	})
}

// write starts the call.
func (b *readBench) write(p *pipe) *writer {
	b.t.Helper()
	b.run(p, "c1")
	return <-b.writers
}

func readOf(id uint64, offset int64, most int, follow bool) *wire.Message {
	return &wire.Message{Read: &wire.ReadOutput{ID: id, CallUID: "c1", Stream: wire.Stdout, Offset: offset, Max: most, Follow: follow}}
}

// data is the next message, which is one of data.
func data(t *testing.T, p *pipe) *wire.Data {
	t.Helper()
	m := <-p.out
	if m.Data == nil {
		t.Fatalf("got %+v; want data", m)
	}
	if err := m.Data.Check(); err != nil {
		t.Fatalf("%v: %+v", err, m.Data)
	}
	if _, err := wire.Encode(m); err != nil {
		t.Fatal(err)
	}
	return m.Data
}

// answer is all that answers a Read.
func answer(t *testing.T, p *pipe, id uint64, offset int64) (all []byte, last *wire.Data) {
	t.Helper()
	for {
		d := data(t, p)
		if d.ID != id || d.Offset != offset+int64(len(all)) {
			t.Fatalf("got %d bytes at %d for %d; want some at %d", d.Bytes, d.Offset, d.ID, offset+int64(len(all)))
		}
		if all = append(all, d.Payload...); d.End {
			return all, d
		}
	}
}

func TestTheOperatorReadsWhatAProcessWrites(t *testing.T) {
	reading(t, func(t *testing.T, b *readBench, p *pipe) {
		w := b.write(p)
		text := bytes.Repeat([]byte("0123456789"), 10_000)
		_, _ = w.stdout.Write(text)
		for id, c := range []struct {
			offset, most, want int
		}{
			{0, 10, 10}, {0, wire.MaxRead, wire.MaxRead}, {99_990, 100, 10}, {100_000, 100, 0}, {5, 0, 0}, {1 << 40, 5, 0},
			{50_000, wire.MaxPayload, wire.MaxPayload}, {50_000, wire.MaxPayload + 1, wire.MaxPayload + 1},
		} {
			p.in <- readOf(uint64(id), int64(c.offset), c.most, false)
			all, last := answer(t, p, uint64(id), int64(c.offset))
			if len(all) != c.want || len(all) > 0 && !bytes.Equal(all, text[c.offset:c.offset+c.want]) {
				t.Errorf("%+v: got %d bytes", c, len(all))
			}
			if last.Total != 100_000 || last.Complete || last.Unknown {
				t.Errorf("%+v: it says %+v", c, last)
			}
		}
		close(w.over)
		if m := <-p.out; m.Result == nil {
			t.Errorf("got %+v", m)
		}
		p.in <- readOf(100, 99_999, 10, false)
		if all, last := answer(t, p, 100, 99_999); string(all) != "9" || !last.Complete || last.SHA256 != w.stdout.Info().SHA256 || last.SHA256 == "" {
			t.Errorf("after the end: %q, %+v", all, last)
		}
		p.in <- &wire.Message{Read: &wire.ReadOutput{ID: 101, CallUID: "c2", Stream: wire.Stdout, Max: 10}}
		if d := data(t, p); !d.Unknown || !d.End {
			t.Errorf("of another call: %+v", d)
		}
	})
}

func TestAReadThatFollowsWaitsForMoreOrTheEndOrItsCancel(t *testing.T) {
	reading(t, func(t *testing.T, b *readBench, p *pipe) {
		p.in <- readOf(0, 0, 10, true)
		if d := data(t, p); !d.Unknown {
			t.Errorf("of a call that wasn't assigned: %+v", d)
		}
		w := b.write(p)
		p.in <- readOf(1, 0, 10, true)
		p.in <- readOf(2, 3, 10, true)
		p.in <- readOf(3, 0, 10, false)
		if all, last := answer(t, p, 3, 0); len(all) != 0 || last.Complete {
			t.Errorf("got %q, %+v", all, last)
		}
		_, _ = w.stdout.Write([]byte("abc"))
		if all, _ := answer(t, p, 1, 0); string(all) != "abc" {
			t.Errorf("got %q", all)
		}
		synctest.Wait()
		p.in <- &wire.Message{CancelRead: &wire.CancelRead{ID: 2}}
		p.in <- &wire.Message{CancelRead: &wire.CancelRead{ID: 77}}
		if all, last := answer(t, p, 2, 3); len(all) != 0 || last.Complete {
			t.Errorf("got %q, %+v", all, last)
		}
		p.in <- readOf(4, 3, 10, true)
		synctest.Wait()
		close(w.over)
		for range 2 {
			// They may come in any order.
			if m := <-p.out; m.Data != nil && (!m.Data.Complete || m.Data.Bytes != 0) || m.Data == nil && m.Result == nil {
				t.Errorf("got %+v", m)
			}
		}
	})
}

// What is asked for before the process is started is answered when it is, or never will be.
func TestAReadMayComeBeforeTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls chan *writer
		b := start(t, theSession, func(b *bench) { calls = writing(b.Supervisor, kept.Limits{Memory: 100}) })
		p, _ := b.connect()
		p.in <- begin(theSession)
		p.in <- assigned("c1")
		p.in <- readOf(1, 0, 10, true)
		w := <-calls
		_, _ = w.stdout.Write([]byte("abc"))
		if all, _ := answer(t, p, 1, 0); string(all) != "abc" {
			t.Errorf("got %q", all)
		}
		close(w.over)
		b.wantResult(p, "c1")
		p.in <- assigned("never")
		b.wantResult(p, "never")
		p.in <- &wire.Message{Read: &wire.ReadOutput{ID: 2, CallUID: "never", Stream: wire.Stderr, Max: 10, Follow: true}}
		if d := data(t, p); !d.Unknown {
			t.Errorf("of a call whose process was never started: %+v", d)
		}
		b.stop()
	})
}

func TestAnOperatorThatAsksForTooMuchIsLeft(t *testing.T) {
	for name, ask := range map[string]func(p *pipe){
		"more at a time than may be": func(p *pipe) {
			for id := range uint64(wire.MaxReads + 2) {
				p.in <- readOf(id, 0, 10, true)
			}
		},
		"the same twice": func(p *pipe) { p.in <- readOf(1, 0, 10, true); p.in <- readOf(1, 0, 10, true) },
		"too many bytes": func(p *pipe) { p.in <- readOf(1, 0, wire.MaxRead+1, true) },
		"no stream": func(p *pipe) {
			p.in <- &wire.Message{Read: &wire.ReadOutput{ID: 1, CallUID: "c1", Stream: "stdin"}}
		},
	} {
		reading(t, func(t *testing.T, b *readBench, p *pipe) {
			w := b.write(p)
			ask(p)
			synctest.Wait()
			if !p.isClosed() {
				t.Errorf("%s: the runner stays", name)
			}
			p, _ = b.connect()
			p.in <- readOf(1, 0, 10, true)
			_, _ = w.stdout.Write([]byte("abc"))
			if all, _ := answer(t, p, 1, 0); string(all) != "abc" {
				t.Errorf("%s: on the next connection: %q", name, all)
			}
			close(w.over)
			<-p.out
		})
	}
}

func TestAsManyReadsAsMayBeAreAnsweredWhileNothingIsSent(t *testing.T) {
	reading(t, func(t *testing.T, b *readBench, p *pipe) {
		w := b.write(p)
		for round := range uint64(3) {
			for id := range uint64(wire.MaxReads) {
				p.in <- readOf(round<<32|id, int64(round), 1, true)
			}
			synctest.Wait()
			_, _ = w.stdout.Write([]byte("x"))
			for range wire.MaxReads {
				if d := data(t, p); d.Bytes != 1 || !d.End {
					t.Errorf("got %+v", d)
				}
			}
		}
		close(w.over)
		<-p.out
	})
}

// A result waits for one frame of data at most, however much is asked for.
func TestAResultDoesNotWaitBehindData(t *testing.T) {
	reading(t, func(t *testing.T, b *readBench, p *pipe) {
		p.Close()
		p = newPipe()
		p.out = make(chan *wire.Message)
		b.dials <- p
		<-b.hellos
		w := b.write(p)
		_, _ = w.stdout.Write(make([]byte, 900_000))
		for id := range uint64(wire.MaxReads) {
			p.in <- readOf(id, 0, wire.MaxRead, false)
		}
		synctest.Wait()
		close(w.over)
		synctest.Wait()
		for frames := 0; ; frames++ {
			m := <-p.out
			synctest.Wait()
			if m.Result != nil {
				break
			}
			if frames > 1 {
				t.Errorf("the result comes after %d frames of data", frames)
			}
		}
		for ended := 0; ended < wire.MaxReads; {
			if d := data(t, p); d.End {
				ended++
			}
		}
	})
}

func TestTheOutputOfEndedCallsStaysUntilItTakesTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls chan *writer
		many := theSession
		many.MaxCalls = 1000
		b := start(t, many, func(b *bench) {
			calls = writing(b.Supervisor, kept.Limits{Memory: 100 << 10, Disk: 1 << 20, Dir: t.TempDir()})
		})
		p, _ := b.connect()
		p.in <- begin(many)
		run := func(uid string, size int) {
			p.in <- assigned(uid)
			w := <-calls
			_, _ = w.stdout.Write(make([]byte, size))
			close(w.over)
			b.wantResult(p, uid)
			p.in <- ack(uid)
		}
		id := uint64(0)
		has := func(uid string) bool {
			id++
			p.in <- &wire.Message{Read: &wire.ReadOutput{ID: id, CallUID: uid, Stream: wire.Stdout, Max: 1}}
			return !data(t, p).Unknown
		}
		// In memory.
		for i := range 41 {
			run("m"+strconv.Itoa(i), 100<<10)
		}
		for i, want := range map[int]bool{0: false, 1: true, 40: true} {
			if has("m"+strconv.Itoa(i)) != want {
				t.Errorf("of the calls with output in memory, number %d is there: %v", i, !want)
			}
		}
		// Small ones are many, and go first.
		for i := range 257 {
			run("s"+strconv.Itoa(i), 1)
		}
		for i, want := range map[int]bool{0: false, 40: false, 41: true, 256: true} {
			if has("s"+strconv.Itoa(i)) != want {
				t.Errorf("of the small calls, number %d is there: %v", i, !want)
			}
		}
		if !has("m1") {
			t.Error("small calls have pushed out a large one")
		}
		b.stop()
	})
}

// However connections come and go, a reader that asks on at its offset gets each byte once, and in order.
func TestReadersGoOnAtTheirOffset(t *testing.T) {
	for seed := range uint64(20) {
		reading(t, func(t *testing.T, b *readBench, p *pipe) {
			random := rand.New(rand.NewPCG(seed, 5))
			w := b.write(p)
			text := make([]byte, 300_000)
			for i := range text {
				text[i] = byte(random.Uint32())
			}
			go func() {
				for at := 0; at < len(text); {
					next := min(len(text), at+1+random.IntN(20_000))
					_, _ = w.stdout.Write(text[at:next])
					at = next
					time.Sleep(time.Millisecond)
				}
				close(w.over)
			}()
			dice := rand.New(rand.NewPCG(seed, 6))
			var got []byte
			for id := uint64(1); ; id++ {
				if dice.IntN(3) == 0 {
					p.Close()
					p, _ = b.connect()
				}
				p.in <- readOf(id, int64(len(got)), 1+dice.IntN(wire.MaxRead), true)
				complete := take(t, p, id, &got)
				if complete && len(got) == len(text) {
					break
				}
			}
			if !bytes.Equal(got, text) {
				t.Errorf("seed %d: got %d bytes, and others", seed, len(got))
			}
		})
	}
}

// take takes the answer to a Read. It passes over the result.
func take(t *testing.T, p *pipe, id uint64, got *[]byte) (complete bool) {
	t.Helper()
	for m := range p.out {
		switch d := m.Data; {
		case m.Result != nil, m.Held != nil:
		case d == nil || d.ID != id || d.Offset != int64(len(*got)):
			t.Fatalf("got %+v at %d", m, len(*got))
		default:
			if *got = append(*got, d.Payload...); d.End {
				return d.Complete
			}
		}
	}
	return false
}

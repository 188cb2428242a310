package dispatch_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output"
)

// sayData sends a frame of data, and waits until the operator has handled it.
func (m *member) sayData(d wire.Data) {
	m.t.Helper()
	d.Bytes = len(d.Payload)
	frame, err := wire.Encode(&wire.Message{Data: &d})
	if err != nil {
		m.t.Fatal(err)
	}
	_, _ = m.Write(frame)
	synctest.Wait()
}

// asked are the Reads and the cancels that the operator has sent since that was last asked.
func (l *line) asked() (reads []wire.ReadOutput, cancels []uint64) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.heard {
		switch {
		case m.Read != nil:
			reads = append(reads, *m.Read)
		case m.CancelRead != nil:
			cancels = append(cancels, m.CancelRead.ID)
		}
	}
	l.heard = nil
	return reads, cancels
}

// opened is a reader of call c1, whose runner the test is.
func (m *member) opened(source *dispatch.RunnerSource) output.Reader {
	m.t.Helper()
	opened := make(chan output.Reader)
	go func() {
		r, err := source.Open(m.t.Context(), keyOf("c1"))
		if err != nil {
			m.t.Error(err)
		}
		opened <- r
	}()
	reads, _ := m.asked()
	if len(reads) != 1 || reads[0].Max != 0 || reads[0].CallUID != "c1" || reads[0].Stream != wire.Stdout {
		m.t.Fatalf("asked for %+v", reads)
	}
	m.sayData(wire.Data{ID: reads[0].ID, End: true})
	return <-opened
}

// asTheRunner runs a test whose runner is the test.
func asTheRunner(t *testing.T, test func(t *testing.T, m *member, source *dispatch.RunnerSource)) {
	t.Helper()
	inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
		m := newServing(t, n, o)
		m.mustAssign("c1")
		test(t, m, sourceOf(o, m.session.KeyHash()))
	})
}

func TestWhatARunnerSendsOtherThanItWasAskedEndsItsConnection(t *testing.T) {
	full := bytes.Repeat([]byte("x"), wire.MaxPayload)
	for name, say := range map[string]func(m *member, id uint64){
		"of no read":         func(m *member, id uint64) { m.sayData(wire.Data{ID: id + 1, Total: 1, Payload: []byte("x")}) },
		"at another offset":  func(m *member, id uint64) { m.sayData(wire.Data{ID: id, Offset: 1, Total: 2, Payload: []byte("x")}) },
		"before the offset":  func(m *member, id uint64) { m.sayData(wire.Data{ID: id, Offset: -1, Payload: []byte("x")}) },
		"nothing for ever":   func(m *member, id uint64) { m.sayData(wire.Data{ID: id}) },
		"more than there is": func(m *member, id uint64) { m.sayData(wire.Data{ID: id, Payload: []byte("x")}) },
		"the same once more": func(m *member, id uint64) {
			m.sayData(wire.Data{ID: id, Total: 9, Payload: []byte("x")})
			m.sayData(wire.Data{ID: id, Total: 9, Payload: []byte("x")})
		},
		"with a gap": func(m *member, id uint64) {
			m.sayData(wire.Data{ID: id, Total: 9, Payload: []byte("x")})
			m.sayData(wire.Data{ID: id, Total: 9, Offset: 2, Payload: []byte("x")})
		},
		"after its end": func(m *member, id uint64) {
			m.sayData(wire.Data{ID: id, Total: 9, Payload: []byte("x"), End: true})
			m.sayData(wire.Data{ID: id, Total: 9, Offset: 1, Payload: []byte("x")})
		},
		"a hash that isn't":   func(m *member, id uint64) { m.sayData(wire.Data{ID: id, Complete: true, SHA256: "x", End: true}) },
		"a large other frame": func(m *member, _ uint64) { m.send(`{"ping":{}}` + strings.Repeat(" ", wire.MaxPayload)) },
		"a frame over bounds": func(m *member, _ uint64) { m.announce(wire.MaxResult + 1) },
		"without an end": func(m *member, id uint64) {
			for at := int64(0); at < 1<<20 && !m.isOver(); at += wire.MaxPayload {
				m.sayData(wire.Data{ID: id, Offset: at, Total: 1 << 30, Payload: full})
			}
		},
	} {
		asTheRunner(t, func(t *testing.T, m *member, source *dispatch.RunnerSource) {
			r := m.opened(source)
			defer r.Close()
			read := make(chan error)
			go func() {
				_, err := r.ReadAt(t.Context(), make([]byte, 10), 0)
				read <- err
			}()
			reads, _ := m.asked()
			if len(reads) != 1 {
				t.Fatalf("asked for %+v", reads)
			}
			say(m, reads[0].ID)
			if !m.isOver() {
				t.Errorf("data %s: the connection goes on", name)
			}
			// The runner doesn't come back.
			if err := <-read; name != "after its end" && !errors.Is(err, dispatch.ErrAway) {
				t.Errorf("data %s: read %v", name, err)
			}
		})
	}
}

func TestDataThatNobodyAskedForEndsTheConnection(t *testing.T) {
	asTheRunner(t, func(t *testing.T, m *member, _ *dispatch.RunnerSource) {
		m.sayData(wire.Data{ID: 1, Total: wire.MaxPayload, Payload: make([]byte, wire.MaxPayload)})
		if !m.isOver() {
			t.Error("the connection goes on")
		}
	})
}

func TestAReadThatNobodyWaitsForIsCanceledAndItsDataDropped(t *testing.T) {
	asTheRunner(t, func(t *testing.T, m *member, source *dispatch.RunnerSource) {
		r := m.opened(source)
		defer r.Close()
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		for range 2 {
			go func() { waited <- r.Wait(ctx, 0) }()
		}
		reads, _ := m.asked()
		if len(reads) != 1 || !reads[0].Follow {
			t.Fatalf("asked for %+v", reads)
		}
		cancel()
		for range 2 {
			if err := <-waited; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}
		if _, cancels := m.asked(); len(cancels) != 1 || cancels[0] != reads[0].ID {
			t.Errorf("canceled %v", cancels)
		}
		m.sayData(wire.Data{ID: reads[0].ID, Total: 5, Payload: []byte("late")})
		m.sayData(wire.Data{ID: reads[0].ID, Offset: 4, Total: 5, Payload: []byte("r"), End: true})
		if m.isOver() {
			t.Error("the connection ends")
		}
		go func() { waited <- r.Wait(t.Context(), 0) }()
		reads, _ = m.asked()
		m.sayData(wire.Data{ID: reads[0].ID, Total: 5, Payload: []byte("later"), End: true})
		if err := <-waited; err != nil {
			t.Error(err)
		}
	})
}

// All who follow a stream cost the pod one Read, and get all of it.
func TestFiveHundredFollowersCostOneRead(t *testing.T) {
	asTheRunner(t, func(t *testing.T, m *member, source *dispatch.RunnerSource) {
		var follows []wire.ReadOutput
		// collect answers what doesn't follow: there is no more than that yet.
		collect := func(total int64) {
			for reads, _ := m.asked(); len(reads) > 0; reads, _ = m.asked() {
				for _, read := range reads {
					if read.Follow {
						follows = append(follows, read)
						continue
					}
					m.sayData(wire.Data{ID: read.ID, Offset: read.Offset, Total: total, End: true})
				}
			}
		}
		var followers sync.WaitGroup
		for i := range 500 {
			followers.Go(func() {
				r, err := source.Open(t.Context(), keyOf("c1"))
				if err != nil {
					t.Error(err)
					return
				}
				defer r.Close()
				got, _, err := copyFrom(t.Context(), r, 0, func() int { return 1 + i%7 })
				if err != nil || string(got) != "a bit, and more" {
					t.Errorf("got %q, %v", got, err)
				}
			})
		}
		for _, say := range []wire.Data{
			{Total: 5, Payload: []byte("a bit"), End: true},
			{Offset: 5, Total: 15, Payload: []byte(", and more"), End: true},
			{Offset: 15, Total: 15, Complete: true, End: true},
		} {
			collect(say.Offset)
			if len(follows) != 1 || follows[0].Offset != say.Offset {
				t.Fatalf("at %d: %d follow", say.Offset, len(follows))
			}
			say.ID, follows = follows[0].ID, nil
			m.sayData(say)
		}
		followers.Wait()
	})
}

// A runner that answers nothing holds up the readers of its own output, within bounds.
func TestTheReadersOfARunnerThatAnswersNothingAreBounded(t *testing.T) {
	asTheRunner(t, func(t *testing.T, m *member, source *dispatch.RunnerSource) {
		r := m.opened(source)
		defer r.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range 500 {
			readers.Go(func() {
				if _, err := r.ReadAt(ctx, make([]byte, 1), int64(i)); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			})
		}
		reads, _ := m.asked()
		if len(reads) == 0 || len(reads) >= wire.MaxReads {
			t.Errorf("asked for %d parts", len(reads))
		}
		for _, read := range reads {
			// All but the end.
			for sent := 0; sent < read.Max; {
				n := min(read.Max-sent, wire.MaxPayload)
				m.sayData(wire.Data{ID: read.ID, Offset: read.Offset + int64(sent), Total: 1 << 30, Payload: make([]byte, n)})
				sent += n
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 500*(64<<10) {
			t.Errorf("500 readers take %d bytes", grown)
		}
		cancel()
		readers.Wait()
		if m.isOver() {
			t.Error("the connection ends")
		}
		// Another call's result still passes.
		m.report("c1", "sealed-c1")
		if m.session.ResultOf("c1") == nil {
			t.Error("the result didn't pass")
		}
	})
}

// A runner that pings and answers nothing holds up nobody for ever.
func TestARunnerThatDoesNotAnswerIsNotWaitedForForEver(t *testing.T) {
	asTheRunner(t, func(t *testing.T, m *member, source *dispatch.RunnerSource) {
		r := m.opened(source)
		defer r.Close()
		ended := make(chan error, 2)
		go func() {
			_, err := source.Open(t.Context(), keyOf("c1"))
			ended <- err
		}()
		go func() {
			_, err := r.ReadAt(t.Context(), make([]byte, 1), 0)
			ended <- err
		}()
		for range 60 {
			m.send(`{"ping":{}}`)
			time.Sleep(wire.PingInterval)
		}
		if m.isOver() || len(ended) != 2 {
			t.Fatalf("over %t, %d answers", m.isOver(), len(ended))
		}
		for range 2 {
			if err := <-ended; err == nil || errors.Is(err, output.ErrNotFound) {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestARunnerThatSaysThatThereIsMoreAndSendsNothingIsNotAskedForEver(t *testing.T) {
	asTheRunner(t, func(t *testing.T, m *member, source *dispatch.RunnerSource) {
		r := m.opened(source)
		defer r.Close()
		for _, read := range []func() error{
			func() error { _, err := r.ReadAt(t.Context(), make([]byte, 1), 0); return err },
			func() error { return r.Wait(t.Context(), 1000) },
		} {
			ended := make(chan error, 1)
			go func() { ended <- read() }()
			asked := 0
			for len(ended) == 0 && asked < 100 {
				reads, _ := m.asked()
				for _, read := range reads {
					asked++
					m.sayData(wire.Data{ID: read.ID, Offset: read.Offset, Total: 1000, End: true})
				}
			}
			if err := <-ended; err == nil || asked >= 100 {
				t.Errorf("%v after %d", err, asked)
			}
		}
	})
}

// A runner of one call exits when its result is acknowledged: its readers turn to where the output is kept then. One whose result
// is only recorded comes back, and so does one of a session.
func TestNobodyWaitsForARunnerThatHasExited(t *testing.T) {
	acknowledge := func(s *dispatch.Runner) { _ = s.Ack("c1") }
	for name, c := range map[string]struct {
		owner wire.Owner
		end   func(*dispatch.Runner)
		waits time.Duration
	}{
		"acknowledged":            {theCall, acknowledge, 0},
		"recorded":                {theCall, func(s *dispatch.Runner) { s.Record("c1") }, dispatch.ReconnectWait},
		"not taken":               {theCall, func(*dispatch.Runner) {}, dispatch.ReconnectWait},
		"acknowledged, a session": {theSession, acknowledge, dispatch.ReconnectWait},
	} {
		inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
			p := n.peer(t)
			p.hasCall(o, "job", c.owner)
			session := o.event(t)
			l := &line{peer: p}
			go l.read()
			m := &member{t: t, line: l}
			r := m.opened(sourceOf(o, session.KeyHash()))
			defer r.Close()
			waited := make(chan error)
			go func() { waited <- r.Wait(t.Context(), 0) }()
			synctest.Wait()
			p.send(resultOf("c1"))
			o.event(t)
			c.end(session)
			began := time.Now()
			p.Close()
			if err := <-waited; !errors.Is(err, dispatch.ErrAway) || time.Since(began) != c.waits {
				t.Errorf("%s: got %v after %s", name, err, time.Since(began))
			}
		})
	}
}

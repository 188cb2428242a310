package dispatch

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"weak"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// postbox is an outbox and the other end of its connection.
func postbox(t *testing.T) (*outbox, net.Conn) {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	return &outbox{conn: near, abort: func() { near.Close() }}, far
}

func stop(uid string) *wire.Message { return &wire.Message{Stop: &wire.Stop{CallUID: uid}} }

func TestMessagesLeaveInOrderAndAreAllSentBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, far := postbox(t)
		for _, uid := range []string{"1", "2", "3"} {
			if err := o.send(stop(uid)); err != nil {
				t.Fatal(err)
			}
		}
		o.close()
		if err := o.send(stop("4")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("sent after the end: %v", err)
		}
		o.sendPong()
		go func() { o.flush(); o.abort() }()
		for _, uid := range []string{"1", "2", "3"} {
			if m, err := wire.Read(far, wire.MaxControl); err != nil || m.Stop == nil || m.Stop.CallUID != uid {
				t.Errorf("got %+v, %v; want %s", m, err, uid)
			}
		}
		if m, err := wire.Read(far, wire.MaxControl); err == nil {
			t.Errorf("got %+v after the end", m)
		}
		o.flush()
	})
}

func TestNobodyWaitsForAPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, far := postbox(t)
		sent := 0
		for o.send(stop("c")) == nil {
			sent++
			synctest.Wait()
		}
		// One is on its way beside those that are queued.
		if sent != maxQueuedFrames+1 {
			t.Errorf("%d messages were taken for a peer that doesn't read", sent)
		}
		if _, err := io.ReadAll(far); err != nil {
			t.Errorf("the connection wasn't closed: %v", err)
		}
		if err := o.send(stop("c")); err == nil {
			t.Error("a message was taken for a connection that was given up")
		}
		o.flush()
	})
}

func TestAPeerThatStopsReadingIsGivenUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, far := postbox(t)
		if err := o.send(stop("c")); err != nil {
			t.Fatal(err)
		}
		o.flush() // The bubble's clock moves on while this waits.
		if _, err := far.Read(make([]byte, 1)); err == nil {
			t.Error("the connection wasn't closed")
		}
	})
}

func TestOnePongAnswersManyPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, far := postbox(t)
		if err := o.send(stop("c")); err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			o.sendPong()
		}
		go func() { o.flush(); o.abort() }()
		got := 0
		for {
			m, err := wire.Read(far, wire.MaxControl)
			if err != nil {
				break
			}
			if m.Pong != nil {
				got++
			}
		}
		if got != 1 {
			t.Errorf("%d pongs", got)
		}
		o.flush()
	})
}

func TestAMessageThatIsTooLargeIsRefusedAndNothingElseHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, far := postbox(t)
		huge := &wire.Message{Assign: &wire.Assignment{Stdin: make([]byte, wire.MaxAssignment)}}
		if err := o.send(huge); !errors.Is(err, wire.ErrTooLarge) {
			t.Errorf("got %v", err)
		}
		if err := o.send(stop("c")); err != nil {
			t.Error(err)
		}
		if m, err := wire.Read(far, wire.MaxControl); err != nil || m.Stop == nil {
			t.Errorf("got %+v, %v", m, err)
		}
		o.flush()
	})
}

// A call's input would stay in the operator's memory while the call runs.
func TestWhatWasSentIsNotKept(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	o, far := postbox(t)
	frame := make([]byte, size)
	kept := weak.Make(&frame[0])
	if err := o.queue(queuedFrame{bytes: frame}); err != nil {
		t.Fatal(err)
	}
	frame = nil
	if _, err := io.ReadFull(far, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	o.writer.Wait()
	runtime.GC()
	if kept.Value() != nil {
		t.Error("the frame is still there")
	}
	runtime.KeepAlive(o)
}

func TestManySendersAndTheEndDoNotRace(t *testing.T) {
	t.Parallel()
	o, far := postbox(t)
	go func() { _, _ = io.Copy(io.Discard, far) }()
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for range 100 {
				_ = o.send(stop("c"))
				o.sendPong()
			}
		})
	}
	senders.Go(o.flush)
	senders.Wait()
	o.abort()
	if o.writing {
		t.Error("the writer is still there")
	}
}

package dial_test

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// say writes a frame as an operator does.
func say(t *testing.T, conn net.Conn, body string) {
	t.Helper()
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)); err != nil {
		t.Error(err)
	}
}

func TestPongsAndWhatIsUnknownAreSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, far, _ := connected(t, nil)
		go func() {
			for _, body := range []string{`{"pong":{}}`, `{"progress":{"bytes":1}}`, `{}`, `{"pong":{"load":1},"x":2}`, `{"stop":{"callUID":"c1","grace":5}}`} {
				say(t, far, body)
			}
		}()
		if m, err := conn.Receive(); err != nil || m.Stop == nil || m.Stop.CallUID != "c1" {
			t.Errorf("got %+v, %v", m, err)
		}
	})
}

func TestABrokenFrameEndsTheConnection(t *testing.T) {
	for name, body := range map[string]string{"not JSON": "hello", "two messages": `{"ack":{},"stop":{}}`} {
		synctest.Test(t, func(t *testing.T) {
			conn, far, _ := connected(t, nil)
			go say(t, far, body)
			if m, err := conn.Receive(); err == nil {
				t.Errorf("%s: got %+v", name, m)
			}
			if err := conn.Send(&wire.Message{Ping: &wire.Ping{}}); err == nil {
				t.Errorf("%s: the connection goes on", name)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		conn, far, _ := connected(t, nil)
		go func() { _, _ = far.Write(binary.BigEndian.AppendUint32(nil, wire.MaxAssignment+1)) }()
		if _, err := conn.Receive(); !errors.Is(err, wire.ErrTooLarge) {
			t.Errorf("a frame over the bound: %v", err)
		}
	})
}

func TestARunnerPingsAndNoticesAnOperatorThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, far, _ := connected(t, nil)
		began := time.Now()
		silent := make(chan time.Time, 1)
		go func() {
			// It answers for a day, and then no more.
			for {
				m, err := wire.Read(far, wire.MaxControl)
				if err != nil {
					return
				}
				if m.Ping == nil {
					t.Errorf("got %+v", m)
				}
				if time.Since(began) >= 24*time.Hour {
					if len(silent) == 0 {
						silent <- time.Now()
					}
					continue
				}
				say(t, far, `{"pong":{}}`)
			}
		}()
		if m, err := conn.Receive(); err == nil {
			t.Errorf("got %+v", m)
		}
		// The last answer was one interval before the first ping that got none.
		if took := time.Since(<-silent); took != 2*wire.PingInterval {
			t.Errorf("noticed after %s", took)
		}
	})
}

// An operator that has no room for a result yet doesn't read it, and says that it is alive.
func TestAResultWaitsForAnOperatorThatIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, far, _ := connected(t, nil)
		received := make(chan error)
		go func() {
			_, err := conn.Receive()
			received <- err
		}()
		sent := make(chan error)
		go func() { sent <- conn.Send(&wire.Message{Result: &wire.Result{CallUID: "c1"}}) }()
		for range 100 {
			time.Sleep(wire.PingInterval)
			say(t, far, `{"pong":{}}`)
		}
		if m, err := wire.Read(far, wire.MaxResult); err != nil || m.Result == nil {
			t.Errorf("got %+v, %v", m, err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		conn.Close()
		if err := <-received; err == nil {
			t.Error("received something from a closed connection")
		}
	})
}

func TestAResultDoesNotWaitForAnOperatorThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, _ := connected(t, nil)
		received := make(chan error)
		go func() {
			_, err := conn.Receive()
			received <- err
		}()
		began := time.Now()
		if err := conn.Send(&wire.Message{Result: &wire.Result{CallUID: "c1"}}); err == nil {
			t.Error("it was sent to nobody")
		}
		if took := time.Since(began); took != wire.SilenceTimeout {
			t.Errorf("gave up after %s", took)
		}
		if err := <-received; err == nil {
			t.Error("received something from nobody")
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, _ := connected(t, nil)
		ended := make(chan error, 3)
		go func() {
			_, err := conn.Receive()
			ended <- err
		}()
		for range 2 {
			// One writes, one waits for it.
			go func() { ended <- conn.Send(&wire.Message{Ping: &wire.Ping{}}) }()
		}
		synctest.Wait()
		conn.Close()
		conn.Close()
		for range 3 {
			if err := <-ended; err == nil {
				t.Error("ended well")
			}
		}
	})
}

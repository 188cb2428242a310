package dial_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// countingConn counts writes, and fails them once it is broken.
type countingConn struct {
	net.Conn
	writes atomic.Int32
	broken atomic.Bool
}

var errBroken = errors.New("the network is gone")

func (c *countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	if c.broken.Load() {
		return 0, errBroken
	}
	return c.Conn.Write(p)
}

// counted connects through a connection that counts.
func counted(t *testing.T) (conn *dial.Conn, far net.Conn, raw *countingConn) {
	t.Helper()
	conn, far, _ = connected(t, nil, func(c *dial.Config) {
		through := c.DialContext
		c.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			dialed, err := through(ctx, network, address)
			raw = &countingConn{Conn: dialed}
			return raw, err
		}
	})
	return conn, far, raw
}

// A part of a file is one write, however many records TLS makes of it, and comes as it was, also after another part in the same memory.
func TestALargeFrameIsOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, far, raw := counted(t)
		const parts = 5
		random := rand.NewChaCha8([32]byte{})
		before := raw.writes.Load()
		for id := range uint64(parts) {
			part := &wire.Part{ID: id, Payload: make([]byte, wire.MaxPart-int(id)), Bytes: wire.MaxPart - int(id)}
			_, _ = random.Read(part.Payload)
			sent := make(chan error, 1)
			go func() { sent <- conn.Send(&wire.Message{Part: part}) }()
			got, err := wire.Read(far, wire.MaxPartFrame)
			if err := errors.Join(err, <-sent); err != nil {
				t.Fatal(err)
			}
			if got.Part.ID != id || !bytes.Equal(got.Part.Payload, part.Payload) {
				t.Errorf("part %d came as part %d, or with other bytes", id, got.Part.ID)
			}
		}
		if writes := raw.writes.Load() - before; writes != parts {
			t.Errorf("%d writes for %d parts", writes, parts)
		}
	})
}

func TestABrokenNetworkFailsALargeFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, raw := counted(t)
		raw.broken.Store(true)
		part := &wire.Part{ID: 1, Payload: make([]byte, wire.MaxPart), Bytes: wire.MaxPart}
		if err := conn.Send(&wire.Message{Part: part}); !errors.Is(err, errBroken) {
			t.Errorf("got %v", err)
		}
	})
}

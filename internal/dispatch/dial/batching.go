package dial

import (
	"errors"
	"net"
	"sync"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// batchingConn writes what TLS makes of a large frame at once. TLS writes each 16 KiB by itself: on a pod network, system calls and
// packets of that size cost more than the encryption.
type batchingConn struct {
	net.Conn

	// mu is held for each write: TLS can have an alert to send at any time.
	mu      sync.Mutex
	isBatch bool
	batch   []byte
	// failed is why a batch wasn't written. TLS takes it for sent, so that nothing may follow it.
	failed error
}

// maxBatch has room for a part of a file, as TLS writes it.
const maxBatch = wire.MaxPartFrame + 4<<10

// begin keeps what is written from now on, as far as it fits.
func (c *batchingConn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isBatch = true
}

// end writes what was kept.
func (c *batchingConn) end() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isBatch = false
	return c.flush()
}

// flush needs the lock.
func (c *batchingConn) flush() error {
	if len(c.batch) == 0 {
		return nil
	}
	if c.failed == nil {
		_, c.failed = c.Conn.Write(c.batch)
	}
	c.batch = c.batch[:0]
	return c.failed
}

// Write implements net.Conn. An error can be that of an earlier write.
func (c *batchingConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isBatch && len(c.batch)+len(p) <= maxBatch {
		if c.batch == nil {
			c.batch = make([]byte, 0, maxBatch)
		}
		c.batch = append(c.batch, p...)
		return len(p), nil
	}
	if err := errors.Join(c.failed, c.flush()); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

package dial

import (
	"bufio"
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
	// batch is nil until the first one. What it couldn't write, TLS takes for sent: nothing may follow it.
	batch *bufio.Writer
}

// maxBatch has room for a part of a file, as TLS writes it.
const maxBatch = wire.MaxPartFrame + 4<<10

// begin keeps what is written from now on, as far as it fits.
func (c *batchingConn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isBatch = true
	if c.batch == nil {
		c.batch = bufio.NewWriterSize(c.Conn, maxBatch)
	}
}

// end writes what was kept.
func (c *batchingConn) end() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isBatch = false
	return c.batch.Flush()
}

// Write implements net.Conn. An error can be that of an earlier write.
func (c *batchingConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.batch == nil {
		return c.Conn.Write(p)
	}
	n, err := c.batch.Write(p)
	if err == nil && !c.isBatch {
		err = c.batch.Flush()
	}
	return n, err
}

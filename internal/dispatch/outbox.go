package dispatch

import (
	"errors"
	"net"
	"sync"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
)

const (
	// writeTimeout is how long one frame may take to leave.
	writeTimeout = 10 * time.Second
	// maxQueuedFrames is how many messages may wait for a runner that doesn't read: a session's calls can all be assigned,
	// stopped and acknowledged at a time, and each Read can be canceled.
	maxQueuedFrames = 4*wire.MaxHeldCalls + 2*wire.MaxReads
	// maxQueuedBytes is how much may wait when another call of a session is assigned. One assignment can be larger.
	maxQueuedBytes = 512 << 10
)

var errNotReading = errors.New("the runner doesn't read what it is sent")

// pongFrame can't fail to encode: it is a constant.
var pongFrame, _ = wire.Encode(&wire.Message{Pong: &wire.Ping{}})

// partFrames has the memory of parts that were sent.
var partFrames = sync.Pool{New: func() any { return new([]byte) }}

// outbox sends messages in order and lets nobody wait for the peer to read them. A goroutine writes while there is
// something to write.
type outbox struct {
	conn net.Conn
	// abort closes the connection at once.
	abort func()
	// drained is called when hasRoom says true again; nil for nobody.
	drained func()

	mu      sync.Mutex
	frames  []queuedFrame
	bytes   int
	pong    bool
	writing bool
	closed  bool
	writer  sync.WaitGroup
}

// queuedFrame waits to be written. sent is called then; nil for nobody.
type queuedFrame struct {
	bytes []byte
	sent  func()
}

// send queues a message. An error means that it is not sent.
func (o *outbox) send(m *wire.Message) error {
	frame, err := wire.Encode(m)
	if err != nil {
		return err
	}
	return o.queue(queuedFrame{frame, nil})
}

// sendPart queues a part of a file. The one before was sent: so nothing else waits for more than one. An error means that it is not sent.
func (o *outbox) sendPart(m *wire.Message, sent func()) error {
	memory := partFrames.Get().(*[]byte)
	frame, err := wire.EncodeInto(*memory, m)
	if err != nil {
		return err
	}
	return o.queue(queuedFrame{frame, func() {
		*memory = frame
		partFrames.Put(memory)
		sent()
	}})
}

func (o *outbox) queue(frame queuedFrame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return net.ErrClosed
	case len(o.frames) >= maxQueuedFrames:
		o.fail()
		return errNotReading
	}
	o.frames, o.bytes = append(o.frames, frame), o.bytes+len(frame.bytes)
	o.start()
	return nil
}

// hasRoom says whether another assignment may be queued.
func (o *outbox) hasRoom() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes < maxQueuedBytes
}

// sendPong queues a Pong unless one is queued already: one answers any number of pings.
func (o *outbox) sendPong() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.pong = true
		o.start()
	}
}

// close takes no more messages; those that are queued are still sent.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}

// flush closes the outbox and waits until what is queued was sent, or could not be. Then it drops the messages, whose memory a remembered
// Runner would keep.
func (o *outbox) flush() {
	o.close()
	o.writer.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.frames = nil
}

// giveUp ends the connection at once, and what is queued is lost.
func (o *outbox) giveUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.abort != nil {
		o.fail()
	}
}

// forget drops the connection, which has ended: the Runner may be remembered, and its connection takes memory.
func (o *outbox) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.conn, o.abort = nil, nil
}

// start needs the lock.
func (o *outbox) start() {
	if !o.writing {
		o.writing = true
		o.writer.Go(o.write)
	}
}

func (o *outbox) write() {
	for {
		frame, drained := o.next()
		if drained && o.drained != nil {
			o.drained()
		}
		if frame.bytes == nil {
			return
		}
		err := o.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		if err == nil {
			_, err = o.conn.Write(frame.bytes)
		}
		if err != nil {
			o.mu.Lock()
			o.fail()
			o.mu.Unlock()
		}
		if frame.sent != nil {
			frame.sent()
		}
	}
}

// next takes the frame that is to be written; an empty one when there is none, and the writer ends. drained says that there is room
// again which there wasn't before.
func (o *outbox) next() (frame queuedFrame, drained bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case len(o.frames) > 0:
		frame, before := o.frames[0], o.bytes
		o.frames[0] = queuedFrame{} // The array would keep what was sent until the next message.
		o.frames, o.bytes = o.frames[1:], before-len(frame.bytes)
		return frame, before >= maxQueuedBytes && o.bytes < maxQueuedBytes
	case o.pong:
		o.pong = false
		return queuedFrame{bytes: pongFrame}, false
	}
	o.writing = false
	return queuedFrame{}, false
}

// fail ends the connection; what is queued is lost. It needs the lock.
func (o *outbox) fail() {
	o.closed, o.frames, o.bytes, o.pong = true, nil, 0, false
	o.abort()
}

package apitest

import (
	"net"
	"sync"

	"go.uber.org/goleak"
)

// door is an address that outlives the servers behind it, so that the API server never finds it closed: it would wait long until
// it tries again.
type door struct {
	net.Listener
	conns chan net.Conn
	ended chan struct{}
}

func newDoor() (*door, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &door{listener, make(chan net.Conn), make(chan struct{})}
	go d.accept()
	return d, nil
}

func (d *door) accept() {
	defer close(d.ended)
	for {
		conn, err := d.Accept()
		if err != nil {
			close(d.conns)
			return
		}
		d.conns <- conn
	}
}

// close ends the door. Connections that no server has taken are closed.
func (d *door) close() {
	_ = d.Close()
	for conn := range d.conns {
		_ = conn.Close()
	}
	<-d.ended
}

// listen returns a listener that takes connections until it is closed.
func (d *door) listen() net.Listener { return &shift{door: d, closed: make(chan struct{})} }

type shift struct {
	*door
	closed chan struct{}
	once   sync.Once
}

// Accept returns the next connection.
func (s *shift) Accept() (net.Conn, error) {
	select {
	case conn, ok := <-s.conns:
		if ok {
			return conn, nil
		}
	case <-s.closed:
	}
	return nil, net.ErrClosed
}

// Close ends Accept, and leaves the address to the next server.
func (s *shift) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// Leaks are goroutines that a stopped server of k8s.io/apiserver leaves, and not what it serves.
func Leaks() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*Typed[...]).updateUnfinishedWorkLoop"),
		goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop"),
	}
}

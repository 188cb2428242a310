package controllers_test

import (
	"context"
	"sync"
	"time"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// inbox are the messages of one connection that nobody has handled.
type inbox struct {
	mu       sync.Mutex
	messages []*wire.Message
	ended    chan struct{}
}

func (i *inbox) read(conn *dial.Conn) {
	defer close(i.ended)
	for {
		m, err := conn.Receive()
		if err != nil {
			return
		}
		i.mu.Lock()
		i.messages = append(i.messages, m)
		i.mu.Unlock()
	}
}

func (i *inbox) take() *wire.Message {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.messages) == 0 {
		return nil
	}
	m := i.messages[0]
	i.messages = i.messages[1:]
	return m
}

// disconnect loses the connection, with all that wasn't handled or sent.
func (p *process) disconnect() {
	p.w.t.Helper()
	if p.conn == nil {
		return
	}
	p.conn.Close()
	<-p.inbox.ended
	p.conn, p.unsent = nil, nil
	eventually(p.w.t, func() bool { return p.w.hub.Session(p.config.Hello.JobUID) != p.session })
	p.session = nil
}

// connect dials in again, and says what the process has.
func (p *process) connect() {
	p.w.t.Helper()
	p.disconnect()
	if p.gone {
		return
	}
	before := p.w.hub.Session(p.config.Hello.JobUID)
	conn, err := p.dial(len(p.calls))
	if err != nil {
		p.w.t.Fatalf("%s dials: %v", p.job, err)
	}
	p.conn, p.inbox = conn, &inbox{ended: make(chan struct{})}
	go p.inbox.read(conn)
	p.w.t.Cleanup(conn.Close)
	for _, c := range p.calls {
		if c.result != nil {
			p.unsent = append(p.unsent, c.answer())
		}
	}
	eventually(p.w.t, func() bool {
		p.session = p.w.hub.Session(p.config.Hello.JobUID)
		return p.session != nil && p.session != before
	})
}

// dial says hello, and lists as many of the calls as it is told.
func (p *process) dial(listed int) (*dial.Conn, error) {
	p.config.Endpoints = []string{p.w.address}
	if p.begun == nil {
		return p.config.Dial(context.Background(), dial.Call{})
	}
	conn, err := p.config.DialSession(context.Background(), &wire.Session{
		UID: p.begun.SessionUID, Name: p.begun.SessionName, Incarnation: p.begun.Incarnation, Taken: len(p.taken), Held: len(p.calls),
	})
	for i := 0; err == nil && i < listed; i++ {
		err = conn.Send(&wire.Message{Held: &p.calls[i].Held})
	}
	return conn, err
}

// hear handles one message, if one comes.
func (p *process) hear() bool {
	if p.conn == nil || p.gone {
		return false
	}
	for deadline := time.Now().Add(4 * time.Millisecond); ; time.Sleep(200 * time.Microsecond) {
		if m := p.inbox.take(); m != nil {
			p.handle(m)
			return true
		}
		select {
		case <-p.inbox.ended:
			p.disconnect()
			return false
		default:
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// say sends one message, and waits until the operator has it.
func (p *process) say() bool {
	if p.conn == nil || p.gone || len(p.unsent) == 0 {
		return false
	}
	m := p.unsent[0]
	p.unsent = p.unsent[1:]
	p.tell("%s says %s", m)
	if p.conn.Send(m) != nil {
		p.disconnect()
		return false
	}
	for deadline := time.Now().Add(5 * time.Second); !p.isHeard(m) && time.Now().Before(deadline); {
		time.Sleep(200 * time.Microsecond)
	}
	return true
}

func (p *process) isHeard(m *wire.Message) bool {
	switch {
	case m.Started != nil:
		held, has := p.session.HeldCall(m.Started.CallUID)
		return !has || held.StartedMicroseconds > 0
	case m.Result != nil:
		held, has := p.session.HeldCall(m.Result.CallUID)
		return !has || held.State == dispatch.Ended && p.session.ResultOf(m.Result.CallUID) != nil
	case m.Known != nil:
		held, has := p.session.HeldCall(m.Known.CallUID)
		return !has || held.State == dispatch.Known
	}
	return true
}

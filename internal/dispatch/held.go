package dispatch

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// receiveHeld receives the calls that follow a hello. They are too large for a frame that is read
// before its sender is known, and wait for room in the budget of results while they are read.
func (c *connection) receiveHeld() error {
	serving := c.hello.Serving
	if serving == nil || serving.Held == 0 {
		return nil
	}
	c.isListing = true
	defer func() { c.isListing = false }()
	defer c.sendPongs()()
	for held := 0; held < serving.Held; {
		m, release, err := c.next()
		if err != nil {
			return err
		}
		switch {
		case m.Ping != nil:
			err = c.pong()
		case m.Held != nil:
			held++
			err = c.hold(m.Held)
		default:
			err = fmt.Errorf("a hello of %d calls is followed by %d", serving.Held, held)
		}
		release()
		if err != nil {
			return err
		}
	}
	return nil
}

// hold takes a call that the runner has.
func (c *connection) hold(h *wire.Held) error {
	switch {
	case !isUID(h.UID):
		return fmt.Errorf("a held call's UID, %.64q, is not a UID", h.UID)
	case len(validation.IsDNS1123Subdomain(h.Name)) > 0:
		return fmt.Errorf("a held call's name, %.64q, is not a DNS subdomain", h.Name)
	case h.State != Running && h.State != Ended:
		return fmt.Errorf("a held call is neither %s nor %s", wire.Running, wire.Ended)
	case len(h.Decision) > wire.MaxDecision:
		return errors.New("a held call's decision is larger than it may be")
	}
	return inServed(c.Runner, func(v *served) error {
		switch {
		case !v.takes(h.UID):
			return errors.New("the runner of a call holds another one")
		case v.calls[h.UID] != nil:
			return fmt.Errorf("call %s is held twice", h.UID)
		}
		call := v.add(*h)
		call.Decision, call.releaseDecision = c.results.keepDecision(c.hello.Namespace, h.Decision)
		return nil
	})
}

// takeServed takes a message about calls of a runner that has begun.
func (c *connection) takeServed(m *wire.Message, release func()) (err error) {
	var news News
	switch {
	case m.Known != nil:
		news, err = c.setKnown(m.Known)
	case m.Result != nil:
		news, err = c.setResult(m.Result, release)
	default:
		release()
		err = errNotSent
	}
	if err == nil {
		c.hub.notify(c.Runner, news)
	}
	return err
}

package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	controlTimeout = 30 * time.Second
	maxRequest     = 4096
)

// Request is one line to the control socket. Verbs: status, stop, start,
// restart, kill.
type Request struct {
	Verb      string
	Component string
}

// Response is the one line that comes back.
type Response struct {
	Error      string
	Components []Status
}

// Status is how one component is doing. The PID is the one inside the node.
type Status struct {
	Name     string
	State    string
	PID      int
	Since    time.Time
	Restarts int
	LastEnd  string
	Ready    bool
}

// Ask sends a request to the supervisor behind socket.
func Ask(socket string, req Request) ([]Status, error) {
	conn, err := net.DialTimeout("unix", socket, controlTimeout)
	if err != nil {
		return nil, fmt.Errorf("reaching the node's supervisor: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(controlTimeout)); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return nil, fmt.Errorf("asking the node's supervisor: %w", err)
	}
	var resp Response
	if err := json.NewDecoder(conn).Decode(&resp); err != nil {
		return nil, fmt.Errorf("hearing the node's supervisor: %w", err)
	}
	if resp.Error != "" {
		return resp.Components, errors.New(resp.Error)
	}
	return resp.Components, nil
}

func (n *node) listen(ctx context.Context, socket string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("opening the control socket: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return err
	}
	go func() {
		for ctx.Err() == nil {
			conn, err := l.Accept()
			if err != nil {
				slog.Error("control socket", "error", err)
				return
			}
			go n.serve(ctx, conn)
		}
	}()
	return nil
}

func (n *node) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(controlTimeout)); err != nil {
		return
	}
	var req Request
	if err := json.NewDecoder(io.LimitReader(conn, maxRequest)).Decode(&req); err != nil {
		return
	}
	var resp Response
	if err := n.handle(ctx, req); err != nil {
		resp.Error = err.Error()
	}
	resp.Components = n.statuses(ctx)
	if err := json.NewEncoder(conn).Encode(resp); err != nil {
		slog.Error("answering on the control socket", "error", err)
	}
}

func (n *node) handle(ctx context.Context, req Request) error {
	if req.Verb == "status" {
		return nil
	}
	p, err := n.find(req.Component)
	if err != nil {
		return err
	}
	slog.Info("asked", "verb", req.Verb, "component", req.Component)
	switch req.Verb {
	case "stop":
		return p.stop(ctx)
	case "start":
		p.want(true)
	case "restart":
		if err := p.stop(ctx); err != nil {
			return err
		}
		p.want(true)
	case "kill":
		if !p.signal(syscall.SIGKILL) {
			return fmt.Errorf("%s isn't running", req.Component)
		}
	default:
		return fmt.Errorf("%q: unknown verb", req.Verb)
	}
	return nil
}

func (p *process) status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

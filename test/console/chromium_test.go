package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// chromium is a running browser.
type chromium struct {
	command *exec.Cmd
	to      *os.File
	dir     string

	mu      sync.Mutex
	next    int
	pending map[int]chan message
	pages   map[string]func(method string, params json.RawMessage)
	ended   chan struct{}
}

// message is one of the Chrome DevTools Protocol: a command, its answer, or an event.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// startChromium starts a browser that can reach this machine only.
func startChromium() (*chromium, error) {
	program := os.Getenv("TOOLCALL_CHROMIUM")
	if program == "" {
		program = "chromium"
	}
	dir, err := os.MkdirTemp("", "chromium")
	if err != nil {
		return nil, err
	}
	args := []string{
		"--headless=new", "--remote-debugging-pipe", "--user-data-dir=" + dir, "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--ignore-certificate-errors",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--window-size=1400,1000", "about:blank",
	}
	if os.Getuid() == 0 {
		args = append([]string{"--no-sandbox"}, args...) // Chromium has no sandbox for root.
	}
	theirIn, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &chromium{
		command: exec.Command(program, args...), to: to, dir: dir,
		pending: map[int]chan message{}, pages: map[string]func(string, json.RawMessage){}, ended: make(chan struct{}),
	}
	c.command.Env = append(os.Environ(), "TMPDIR="+dir)
	c.command.ExtraFiles = []*os.File{theirIn, theirOut} // Descriptors 3 and 4.
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s (make test-programs installs it): %w", program, err)
	}
	err = errors.Join(theirIn.Close(), theirOut.Close())
	go c.receive(from)
	return c, err
}

// stop ends the browser with all its processes.
func (c *chromium) stop() error {
	_ = syscall.Kill(-c.command.Process.Pid, syscall.SIGKILL)
	_ = c.command.Wait()
	<-c.ended
	return errors.Join(c.to.Close(), os.RemoveAll(c.dir))
}

// receive passes messages on until the browser ends.
func (c *chromium) receive(from *os.File) {
	defer close(c.ended)
	defer from.Close()
	in := bufio.NewReader(from)
	for {
		raw, err := in.ReadBytes(0)
		if err != nil {
			c.abandon(err)
			return
		}
		m := message{}
		if json.Unmarshal(raw[:len(raw)-1], &m) != nil {
			continue
		}
		c.mu.Lock()
		answered, onEvent := c.pending[m.ID], c.pages[m.SessionID]
		delete(c.pending, m.ID)
		c.mu.Unlock()
		switch {
		case answered != nil:
			answered <- m
		case m.Method != "" && onEvent != nil:
			onEvent(m.Method, m.Params)
		}
	}
}

func (c *chromium) abandon(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, answered := range c.pending {
		m := message{Error: &struct {
			Message string `json:"message"`
		}{fmt.Sprintf("the browser ended: %v", why)}}
		answered <- m
	}
	c.pending = nil
}

type params = map[string]any

// do sends a command to the browser, or to the page of a session, and decodes the answer.
func (c *chromium) do(ctx context.Context, session, method string, p params, into any) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.pending == nil {
		c.mu.Unlock()
		return io.ErrClosedPipe
	}
	c.next++
	m, answered := message{ID: c.next, SessionID: session, Method: method, Params: raw}, make(chan message, 1)
	c.pending[m.ID] = answered
	sent, err := json.Marshal(m)
	if err == nil {
		_, err = c.to.Write(append(sent, 0))
	}
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	case m = <-answered:
	}
	if m.Error != nil {
		return fmt.Errorf("%s: %s", method, m.Error.Message)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(m.Result, into)
}

// commandTimeout bounds one command.
const commandTimeout = 30 * time.Second

package supervisor

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	stopPatience   = 10 * time.Second
	firstBackoff   = time.Second
	longestBackoff = 15 * time.Second
	healthyAfter   = 30 * time.Second
)

// States of a component, as the control socket tells them.
const (
	StateWaiting  = "waiting"
	StateRunning  = "running"
	StateStopped  = "stopped"
	StateCrashing = "restarting"
)

// process keeps one component running for as long as that is wanted.
type process struct {
	spec   Component
	env    []string
	logDir string
	reaper *reaper
	ready  func(ctx context.Context, names []string) error

	mu      sync.Mutex
	wanted  bool
	now     Status
	changed chan struct{}
}

func (p *process) run(ctx context.Context) {
	if err := p.ready(ctx, p.spec.After); err != nil {
		return
	}
	backoff := firstBackoff
	for ctx.Err() == nil {
		wanted, changed := p.wish()
		if !wanted {
			p.await(ctx, changed, 0)
			continue
		}
		started := time.Now()
		p.once()
		if wanted, changed = p.wish(); !wanted {
			continue
		}
		if time.Since(started) > healthyAfter {
			backoff = firstBackoff
		}
		p.await(ctx, changed, backoff)
		backoff = min(2*backoff, longestBackoff)
		p.update(func() { p.now.Restarts++ })
	}
}

// await pauses until something changes, or for the given time unless it is zero.
func (p *process) await(ctx context.Context, changed <-chan struct{}, limit time.Duration) {
	var timer <-chan time.Time
	if limit > 0 {
		timer = time.After(limit)
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case <-timer:
	}
}

// once starts the component and returns when it has ended.
func (p *process) once() {
	ended, err := p.launch()
	if err != nil {
		slog.Error("component can't be started", "component", p.spec.Name, "error", err)
		p.update(func() { p.now.State, p.now.LastEnd = StateCrashing, err.Error() })
		return
	}
	status := <-ended
	slog.Info("component ended", "component", p.spec.Name, "how", describe(status))
	p.update(func() {
		p.now.PID, p.now.Since, p.now.LastEnd = 0, time.Now(), describe(status)
		p.now.State = StateStopped
		if p.wanted {
			p.now.State = StateCrashing
		}
	})
}

func (p *process) launch() (<-chan syscall.WaitStatus, error) {
	log, err := os.OpenFile(filepath.Join(p.logDir, p.spec.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, ended, err := p.reaper.start(p.spec.Args, &syscall.ProcAttr{
		Dir: "/", Env: p.env, Files: []uintptr{null.Fd(), log.Fd(), log.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, err
	}
	p.now.PID, p.now.State, p.now.Since = pid, StateRunning, time.Now()
	return ended, nil
}

func (p *process) stop(ctx context.Context) error {
	p.want(false)
	p.signal(syscall.SIGTERM)
	if p.awaitEnd(ctx, stopPatience) {
		return nil
	}
	p.signal(syscall.SIGKILL)
	if p.awaitEnd(ctx, stopPatience) {
		return nil
	}
	return fmt.Errorf("%s doesn't end", p.spec.Name)
}

func (p *process) awaitEnd(ctx context.Context, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		if p.status().PID == 0 {
			return true
		}
		p.await(ctx, nil, 20*time.Millisecond)
	}
	return p.status().PID == 0
}

func (p *process) signal(s syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now.PID > 0 && syscall.Kill(p.now.PID, s) == nil
}

func (p *process) want(wanted bool) {
	p.update(func() {
		p.wanted = wanted
		if !wanted && p.now.PID == 0 {
			p.now.State = StateStopped
		}
		close(p.changed)
		p.changed = make(chan struct{})
	})
}

func (p *process) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// wish tells whether the component is wanted, and what closes when that changes.
func (p *process) wish() (bool, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wanted, p.changed
}

func describe(s syscall.WaitStatus) string {
	if s.Signaled() {
		return "signal " + s.Signal().String()
	}
	return fmt.Sprintf("exit code %d", s.ExitStatus())
}

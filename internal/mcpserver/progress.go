package mcpserver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolcall.dev/operator/internal/result"
)

const (
	// progressInterval is the minimum time between two notifications.
	progressInterval = 200 * time.Millisecond
	// heartbeat is the time after which a call without output sends a notification: clients time out silent requests.
	heartbeat = 10 * time.Second
	// maxLive bounds the live output of one notification, in bytes. A notification leaves out what exceeds it. The
	// result still has it, as far as the status of the call does.
	maxLive = 16 << 10
)

// progress sends the output of a running call to a client that requested progress notifications.
type progress struct {
	// notify sends one notification. It is nil if the client didn't request any.
	notify  func(message string, elapsed time.Duration)
	started time.Time
	cancel  context.CancelFunc
	stopped chan struct{}

	mu      sync.Mutex
	pending []byte
	omitted int
	last    time.Time
}

// startProgress starts to send notifications if the request has a progress token.
func startProgress(ctx context.Context, req *mcp.CallToolRequest) *progress {
	token := req.Params.GetProgressToken()
	if token == nil {
		return &progress{}
	}
	return newProgress(ctx, func(message string, elapsed time.Duration) {
		// If the client is gone, the end of its connection cancels the request.
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: elapsed.Seconds(), Message: message,
		})
	})
}

func newProgress(ctx context.Context, notify func(string, time.Duration)) *progress {
	now := time.Now()
	p := &progress{notify: notify, started: now, last: now, stopped: make(chan struct{})}
	ctx, p.cancel = context.WithCancel(ctx)
	go p.run(ctx)
	return p
}

// output returns the function that receives the command's output, nil if the client requested no progress.
func (p *progress) output() func(chunk []byte) {
	if p.notify == nil {
		return nil
	}
	return p.add
}

// add adds output for the next notification, and keeps at most its end.
func (p *progress) add(chunk []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, chunk...)
	if over := len(p.pending) - maxLive; over > 0 {
		for over < len(p.pending) && !utf8.RuneStart(p.pending[over]) {
			over++
		}
		p.pending = append(p.pending[:0], p.pending[over:]...)
		p.omitted += over
	}
}

func (p *progress) run(ctx context.Context) {
	defer close(p.stopped)
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.send(false)
		}
	}
}

// send sends the pending output, or an empty notification when a heartbeat is due.
func (p *progress) send(final bool) {
	message := p.take(final)
	now := time.Now()
	if message == "" && (final || now.Sub(p.last) < heartbeat) {
		return
	}
	p.last = now
	p.notify(message, now.Sub(p.started))
}

// take removes the pending output up to the last complete character, or all of it at the end.
func (p *progress) take(final bool) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	complete := p.pending
	if !final {
		complete = result.TrimPartialEnd(p.pending)
	}
	text := strings.ToValidUTF8(string(complete), "\uFFFD")
	p.pending = append(p.pending[:0], p.pending[len(complete):]...)
	if p.omitted > 0 {
		text = fmt.Sprintf("[%d bytes omitted]\n%s", p.omitted, text)
		p.omitted = 0
	}
	return text
}

// stop sends the rest of the output. No notification may follow the answer, so none follows stop.
func (p *progress) stop() {
	if p.notify == nil {
		return
	}
	p.cancel()
	<-p.stopped
	p.send(true)
}

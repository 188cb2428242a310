package mcpserver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// progressEvery is how often live output is passed on, at most.
	progressEvery = 200 * time.Millisecond
	// heartbeat is how often a client hears that a silent call still runs: clients give up on silent requests.
	heartbeat = 10 * time.Second
	// maxLive bounds the live output of one notification, in bytes. What is more is left out there, and told in
	// the result as far as that holds it.
	maxLive = 16 << 10
)

// progress passes a call's output on while it runs, to a client that asked for that.
type progress struct {
	// notify sends one notification; nil when nobody asked.
	notify func(message string, elapsed time.Duration)
	begun  time.Time
	cancel context.CancelFunc
	ended  chan struct{}

	mu   sync.Mutex
	held []byte
	left int
	last time.Time
}

// startProgress begins to notify if the request carries a token for that.
func startProgress(ctx context.Context, req *mcp.CallToolRequest) *progress {
	token := req.Params.GetProgressToken()
	if token == nil {
		return &progress{}
	}
	return newProgress(ctx, func(message string, elapsed time.Duration) {
		// A client that can't be reached any more ends the request by itself.
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: elapsed.Seconds(), Message: message,
		})
	})
}

func newProgress(ctx context.Context, notify func(string, time.Duration)) *progress {
	now := time.Now()
	p := &progress{notify: notify, begun: now, last: now, ended: make(chan struct{})}
	ctx, p.cancel = context.WithCancel(ctx)
	go p.run(ctx)
	return p
}

// output is what to tell of a command's output; nil when nobody wants to know.
func (p *progress) output() func(chunk []byte) {
	if p.notify == nil {
		return nil
	}
	return p.add
}

// add keeps the end of what wasn't passed on yet.
func (p *progress) add(chunk []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, chunk...)
	if over := len(p.held) - maxLive; over > 0 {
		for over < len(p.held) && !utf8.RuneStart(p.held[over]) {
			over++
		}
		p.held = append(p.held[:0], p.held[over:]...)
		p.left += over
	}
}

func (p *progress) run(ctx context.Context) {
	defer close(p.ended)
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.pass(false)
		}
	}
}

// pass sends what is held, or a sign of life when there has been none for long.
func (p *progress) pass(final bool) {
	message := p.take(final)
	now := time.Now()
	if message == "" && (final || now.Sub(p.last) < heartbeat) {
		return
	}
	p.last = now
	p.notify(message, now.Sub(p.begun))
}

// take gives what is held up to the last whole character; at the end, all of it.
func (p *progress) take(final bool) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	whole := len(p.held)
	if !final {
		whole = wholeRunes(p.held)
	}
	text := strings.ToValidUTF8(string(p.held[:whole]), "\uFFFD")
	p.held = append(p.held[:0], p.held[whole:]...)
	if p.left > 0 {
		text = fmt.Sprintf("[%d bytes left out]\n%s", p.left, text)
		p.left = 0
	}
	return text
}

// wholeRunes is the length of the text without a character that is cut at its end.
func wholeRunes(text []byte) int {
	for back := 1; back <= min(utf8.UTFMax-1, len(text)); back++ {
		if tail := text[len(text)-back:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return len(text) - back
			}
			break
		}
	}
	return len(text)
}

// end passes the rest on. No notification follows it, as none may follow the answer.
func (p *progress) end() {
	if p.notify == nil {
		return
	}
	p.cancel()
	<-p.ended
	p.pass(true)
}

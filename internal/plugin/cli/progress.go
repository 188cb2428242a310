package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/terminal"
)

// ProgressDelay is how long a call or a session may take to start before progress messages appear. SessionCallDelay is
// that of a call in a session: the operator writes after a second that it runs.
const (
	ProgressDelay    = time.Second
	SessionCallDelay = 2 * time.Second
)

// progress prints what a call or a session waits for until it starts.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	timer *time.Timer
	// due is true once the delay has passed, done once there is nothing more to print.
	due, done     bool
	text, printed string
}

func NewProgress(out io.Writer, quiet bool, delay time.Duration) *progress {
	p := &progress{out: out, done: quiet, text: "waiting for the operator"}
	if !quiet {
		p.timer = time.AfterFunc(delay, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.due = true
			p.print()
		})
	}
	return p
}

// print prints the current text once. The caller holds the lock.
func (p *progress) print() {
	if p.due && !p.done && p.text != p.printed {
		fmt.Fprintln(p.out, p.text)
		p.printed = p.text
	}
}

// Update takes the new state of the call.
func (p *progress) Update(call *v1alpha1.ToolCall) { p.Set(pendingReason(call)) }

// Set takes what is waited for now. There is nothing more to print once it is empty.
func (p *progress) Set(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = text
	p.done = p.done || p.text == ""
	p.print()
}

func (p *progress) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
	if p.timer != nil {
		p.timer.Stop()
	}
}

// pendingReason says what a call waits for. It is empty once the call has started or finished.
func pendingReason(call *v1alpha1.ToolCall) string {
	started := meta.FindStatusCondition(call.Status.Conditions, v1alpha1.ConditionStarted)
	switch {
	case call.Status.Phase.Terminal() || call.Status.Phase == v1alpha1.PhaseRunning:
		return ""
	case started == nil || started.Message == "":
		return fmt.Sprintf("call %s: waiting for the operator", call.Name)
	default:
		return fmt.Sprintf("call %s: waiting: %s", call.Name, terminal.SafeLine(started.Message))
	}
}

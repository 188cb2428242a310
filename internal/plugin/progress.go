package plugin

import (
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"toolcall.dev/operator/api/v1alpha1"
)

// quietTime is how long a call may take to start before anything is said about it.
const quietTime = time.Second

// progress says what a call waits for, until it starts.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	timer *time.Timer
	// due is true once the quiet time is over.
	due, over  bool
	text, said string
}

func newProgress(out io.Writer, quiet bool) *progress {
	p := &progress{out: out, over: quiet, text: "waiting for the operator"}
	if !quiet {
		p.timer = time.AfterFunc(quietTime, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.due = true
			p.say()
		})
	}
	return p
}

func (p *progress) say() {
	if p.due && !p.over && p.text != p.said {
		fmt.Fprintln(p.out, p.text)
		p.said = p.text
	}
}

func (p *progress) changed(call *v1alpha1.ToolCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = waitingFor(call)
	p.over = p.over || p.text == ""
	p.say()
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
}

// waitingFor is what holds a call up; nothing once it has started or ended.
func waitingFor(call *v1alpha1.ToolCall) string {
	started := meta.FindStatusCondition(call.Status.Conditions, v1alpha1.ConditionStarted)
	switch {
	case call.Status.Phase.Terminal() || call.Status.Phase == v1alpha1.PhaseRunning:
		return ""
	case started == nil:
		return fmt.Sprintf("call %s: waiting for the operator", call.Name)
	default:
		return fmt.Sprintf("call %s: waiting: %s", call.Name, oneLine(started.Message))
	}
}

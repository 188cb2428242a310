package plugin

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// cancelPatience bounds the request that asks a call to stop.
const cancelPatience = 10 * time.Second

// interrupts turns signals, and the loss of whoever reads the output, into what they mean for a call: before it is
// created the first signal stops the creation; after that it cancels the call, and the second leaves it, once the
// request to stop is through. The third doesn't wait for that.
type interrupts struct {
	// creating ends with the first signal, waiting with the second.
	creating, waiting context.Context
	signals           chan os.Signal
	broken            chan struct{}
	done              chan struct{}

	mu     sync.Mutex
	cancel func(ctx context.Context, why string)
	gone   bool
}

// catchInterrupts begins to listen to the signals that a user sends.
func catchInterrupts(ctx context.Context) (caught *interrupts, stop func()) {
	signals := make(chan os.Signal, 2)
	// Without the last one a write to a pipe that nobody reads would end the program and leave the call.
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	i := newInterrupts(ctx, signals)
	return i, func() { signal.Stop(signals); i.close() }
}

func newInterrupts(ctx context.Context, signals chan os.Signal) *interrupts {
	i := &interrupts{signals: signals, broken: make(chan struct{}, 1), done: make(chan struct{})}
	var abandon, leave context.CancelFunc
	i.creating, abandon = context.WithCancel(ctx)
	i.waiting, leave = context.WithCancel(ctx)
	go i.run(abandon, leave)
	return i
}

func (i *interrupts) run(abandon, leave context.CancelFunc) {
	defer leave()
	defer abandon()
	for asked := (chan struct{})(nil); ; {
		why := "interrupted"
		select {
		case <-i.done:
			return
		case s := <-i.signals:
			if s == syscall.SIGPIPE {
				continue
			}
		case <-i.broken:
			why = "nobody reads the output any more"
		}
		abandon()
		if asked == nil {
			asked = make(chan struct{})
			go func() { defer close(asked); i.ask(why) }()
			continue
		}
		select {
		case <-asked:
		case <-i.signals:
		}
		i.noteLeft()
		return
	}
}

func (i *interrupts) noteLeft() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.gone = true
}

// ask cancels the call, once there is one.
func (i *interrupts) ask(why string) {
	i.mu.Lock()
	cancel := i.cancel
	i.mu.Unlock()
	if cancel == nil {
		return
	}
	ctx, end := context.WithTimeout(context.Background(), cancelPatience)
	defer end()
	cancel(ctx, why)
}

// cancels says how to cancel the call that was created. A signal that came while the answer was on its way counts.
func (i *interrupts) cancels(cancel func(ctx context.Context, why string)) {
	i.mu.Lock()
	i.cancel = cancel
	i.mu.Unlock()
	if i.creating.Err() != nil {
		i.ask("interrupted")
	}
}

// lost is called when nobody reads the output any more.
func (i *interrupts) lost() {
	select {
	case i.broken <- struct{}{}:
	default:
	}
}

// left says whether the user wants to go without waiting for the end.
func (i *interrupts) left() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.gone
}

func (i *interrupts) close() { close(i.done) }

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
// created the first signal stops the creation; after that it cancels the call, and the second leaves it.
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

func newInterrupts(ctx context.Context) *interrupts {
	i := &interrupts{signals: make(chan os.Signal, 2), broken: make(chan struct{}, 1), done: make(chan struct{})}
	// Without the last one a write to a pipe that nobody reads would end the program and leave the call.
	signal.Notify(i.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	var abandon, leave context.CancelFunc
	i.creating, abandon = context.WithCancel(ctx)
	i.waiting, leave = context.WithCancel(ctx)
	go i.run(abandon, leave)
	return i
}

func (i *interrupts) run(abandon, leave context.CancelFunc) {
	defer leave()
	defer abandon()
	for asked := false; ; {
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
		if asked {
			i.mu.Lock()
			i.gone = true
			i.mu.Unlock()
			leave()
			return
		}
		asked = true
		go i.ask(why)
	}
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
		go i.ask("interrupted")
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

func (i *interrupts) close() {
	signal.Stop(i.signals)
	close(i.done)
}

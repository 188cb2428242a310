package calls

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"toolcall.dev/operator/internal/plugin/cli"
)

// cancelTimeout bounds the request that cancels a call.
const cancelTimeout = 10 * time.Second

// Interrupts turns signals, and output that can't be written, into actions. The first signal cancels the call: one that is being
// created as soon as it is known, since a request that is cut off may have created it. The second stops creating or following it, once
// the request to cancel it has an answer, and the third gives that request up.
type Interrupts struct {
	// Waiting ends with the second signal, cancelling with the third.
	Waiting, cancelling context.Context
	signals             chan os.Signal
	lost                chan string
	done                chan struct{}

	mu sync.Mutex
	// cancel cancels the call; nil until it is known. pending is why it is to be cancelled then.
	cancel  func(ctx context.Context, why string)
	pending string
	// first is the first signal of the user.
	first os.Signal
}

// catchInterrupts starts to handle the signals that a user sends, until release.
func catchInterrupts(ctx context.Context) (i *Interrupts, release func()) {
	signals := make(chan os.Signal, 2)
	// Unless SIGPIPE is caught, a write to a closed pipe ends the program and leaves the call running.
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	i = NewInterrupts(ctx, signals)
	return i, func() { signal.Stop(signals); i.Close() }
}

func NewInterrupts(ctx context.Context, signals chan os.Signal) *Interrupts {
	i := &Interrupts{signals: signals, lost: make(chan string, 1), done: make(chan struct{})}
	var stopWaiting, stopCancelling context.CancelFunc
	i.Waiting, stopWaiting = context.WithCancel(ctx)
	i.cancelling, stopCancelling = context.WithCancel(context.Background())
	go i.run(stopWaiting, stopCancelling)
	return i
}

func (i *Interrupts) run(stopWaiting, stopCancelling context.CancelFunc) {
	defer stopWaiting()
	var cancelling sync.WaitGroup
	for came := 1; ; came++ {
		why, isOver := i.next()
		switch {
		case isOver:
			return
		case came == 1:
			cancelling.Go(func() { i.cancelCall(why) })
		case came == 2:
			go func() {
				cancelling.Wait()
				stopWaiting()
			}()
		default:
			stopCancelling()
			return
		}
	}
}

// next waits for a signal, or output that can't be written, and says which of them came. isOver says that none is waited for any more.
func (i *Interrupts) next() (why string, isOver bool) {
	for {
		select {
		case <-i.done:
			return "", true
		case why := <-i.lost:
			return why, false
		case s := <-i.signals:
			if s == syscall.SIGPIPE {
				continue
			}
			i.mu.Lock()
			if i.first == nil {
				i.first = s
			}
			i.mu.Unlock()
			return "interrupted", false
		}
	}
}

// FirstSignal is the first signal of the user, nil if there was none.
func (i *Interrupts) FirstSignal() os.Signal {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.first
}

// cancelCall cancels the call, now or as soon as it is known.
func (i *Interrupts) cancelCall(why string) {
	i.mu.Lock()
	cancel := i.cancel
	if cancel == nil {
		i.pending = why
	}
	i.mu.Unlock()
	if cancel == nil {
		return
	}
	ctx, end := context.WithTimeout(i.cancelling, cancelTimeout)
	defer end()
	cancel(ctx, why)
}

// onInterrupt sets how to cancel the call that was created. It cancels the call at once if a signal came while the
// call was being created.
func (i *Interrupts) onInterrupt(cancel func(ctx context.Context, why string)) {
	i.mu.Lock()
	i.cancel = cancel
	why := i.pending
	i.mu.Unlock()
	if why != "" {
		i.cancelCall(why)
	}
}

// readerLost handles output that can't be written like a signal.
func (i *Interrupts) readerLost(err *cli.ExitError) {
	why := "nobody reads the output any more"
	if err.Err != nil {
		why = err.Error()
	}
	select {
	case i.lost <- why:
	default:
	}
}

func (i *Interrupts) Close() { close(i.done) }

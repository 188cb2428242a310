package calls

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// cancelTimeout bounds the request that cancels a call.
const cancelTimeout = 10 * time.Second

// Interrupts turns signals, and the loss of the output's reader, into actions. Before the call exists, the first
// signal stops its creation. After that, the first signal cancels the call, the second stops following it once the
// request to cancel it has an answer, and the third gives that request up.
type Interrupts struct {
	// creating ends with the first signal, waiting with the second, cancelling with the third.
	creating, Waiting, cancelling context.Context
	signals                       chan os.Signal
	lost                          chan struct{}
	done                          chan struct{}

	mu     sync.Mutex
	cancel func(ctx context.Context, why string)
	// first is the first signal of the user.
	first atomic.Value
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
	i := &Interrupts{signals: signals, lost: make(chan struct{}, 1), done: make(chan struct{})}
	var stopCreating, stopWaiting, stopCancelling context.CancelFunc
	i.creating, stopCreating = context.WithCancel(ctx)
	i.Waiting, stopWaiting = context.WithCancel(ctx)
	i.cancelling, stopCancelling = context.WithCancel(context.Background())
	go i.run(stopCreating, stopWaiting, stopCancelling)
	return i
}

func (i *Interrupts) run(stopCreating, stopWaiting, stopCancelling context.CancelFunc) {
	defer stopWaiting()
	defer stopCreating()
	var cancelling sync.WaitGroup
	for came := 1; ; came++ {
		why, isOver := i.next()
		switch {
		case isOver:
			return
		case came == 1:
			stopCreating()
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

// next waits for a signal, or the loss of the output's reader, and says which of them came. isOver says that none is waited for any more.
func (i *Interrupts) next() (why string, isOver bool) {
	for {
		select {
		case <-i.done:
			return "", true
		case <-i.lost:
			return "nobody reads the output any more", false
		case s := <-i.signals:
			if s != syscall.SIGPIPE {
				i.first.CompareAndSwap(nil, s)
				return "interrupted", false
			}
		}
	}
}

// FirstSignal is the first signal of the user, nil if there was none.
func (i *Interrupts) FirstSignal() os.Signal {
	first, _ := i.first.Load().(os.Signal)
	return first
}

// cancelCall cancels the call, if there is one.
func (i *Interrupts) cancelCall(why string) {
	i.mu.Lock()
	cancel := i.cancel
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
	i.mu.Unlock()
	if i.creating.Err() != nil {
		i.cancelCall("interrupted")
	}
}

// readerLost handles the loss of the output's reader like a signal.
func (i *Interrupts) readerLost() {
	select {
	case i.lost <- struct{}{}:
	default:
	}
}

func (i *Interrupts) Close() { close(i.done) }

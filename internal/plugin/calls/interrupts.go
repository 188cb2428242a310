package calls

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"toolcall.dev/operator/internal/plugin/cli"
)

// cancelTimeout bounds the request that cancels a call, and before that what is left of the one that creates it.
const cancelTimeout = 10 * time.Second

// Interrupts turns signals, and output that can't be written, into actions. The first signal cancels the call: one that is being
// created as soon as it is known, since a request that is cut off may have created it; without an answer, it is cut off after
// cancelTimeout. The second stops following it, once the request to cancel it has an answer. The third stops at once.
type Interrupts struct {
	// Waiting ends with the second signal, cancelling with the third.
	Waiting, cancelling context.Context
	signals             chan os.Signal
	errOut              io.Writer
	lost                chan string
	done                chan struct{}
	// known has how to cancel the call, once that has been created.
	known chan func(ctx context.Context, why string)
	// first is the first signal of the user.
	first atomic.Value
}

// catchInterrupts starts to handle the signals that a user sends, until release.
func catchInterrupts(ctx context.Context, errOut io.Writer) (i *Interrupts, release func()) {
	signals := make(chan os.Signal, 2)
	// Unless SIGPIPE is caught, a write to a closed pipe ends the program and leaves the call running.
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	i = NewInterrupts(ctx, signals, errOut)
	return i, func() { signal.Stop(signals); i.Close() }
}

// NewInterrupts handles the signals that come until Close, and says on errOut what a user can't see otherwise.
func NewInterrupts(ctx context.Context, signals chan os.Signal, errOut io.Writer) *Interrupts {
	i := &Interrupts{
		signals: signals, errOut: errOut, lost: make(chan string, 1), done: make(chan struct{}),
		known: make(chan func(context.Context, string), 1),
	}
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
			cancelling.Go(func() { i.cancelCall(why, stopWaiting) })
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

// cancelCall cancels the call, as soon as it is known.
func (i *Interrupts) cancelCall(why string, stopWaiting func()) {
	var cancel func(context.Context, string)
	select {
	case cancel = <-i.known:
	default:
		cancel = i.awaitCreation(why, stopWaiting)
	}
	if cancel != nil {
		ctx, end := context.WithTimeout(i.cancelling, cancelTimeout)
		defer end()
		cancel(ctx, why)
	}
}

// awaitCreation waits until the call is known, and returns how to cancel it. A request that has no answer in time is cut off.
func (i *Interrupts) awaitCreation(why string, stopWaiting func()) func(context.Context, string) {
	fmt.Fprintf(i.errOut, "%s: the call is cancelled once it is created; press Ctrl-C twice more to stop at once\n", why)
	late := time.AfterFunc(cancelTimeout, stopWaiting)
	defer late.Stop()
	select {
	case cancel := <-i.known:
		return cancel
	case <-i.cancelling.Done():
	case <-i.done:
	}
	return nil
}

// onInterrupt sets how to cancel the call that was created.
func (i *Interrupts) onInterrupt(cancel func(ctx context.Context, why string)) { i.known <- cancel }

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

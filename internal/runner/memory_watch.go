package runner

import (
	"context"
	"time"

	"toolcall.dev/operator/internal/result"
)

// Memory is that of a container.
type Memory interface {
	// Limit is how many bytes there are; ok is false when there is no limit.
	Limit() (limit int64, ok bool)
	// Used is how many bytes are in use, Needed how many of them the kernel can't take back. Needed takes longer to find out.
	Used() int64
	Needed() int64
}

const (
	// memoryPercent is how much of the limit may be needed.
	memoryPercent = 95
	// growth is how many bytes a container may come to need in a second: processors write little more.
	growth = 4 << 30
	// The next look is when the memory could be used up, within these bounds. A command that takes the rest of the memory
	// between two looks meets the kernel first.
	minLook, maxLook = 2 * time.Millisecond, 100 * time.Millisecond
	// limitLook is for a container without a limit: it may get one.
	limitLook = time.Second
)

// LookAtMemory returns how many bytes a container may need, whether it needs more, and when to look again.
func LookAtMemory(m Memory) (threshold int64, isExceeded bool, next time.Duration) {
	limit, ok := m.Limit()
	if !ok {
		return 0, false, limitLook
	}
	threshold = limit / 100 * memoryPercent
	left := threshold - m.Used()
	if left <= 0 {
		left = threshold - m.Needed()
	}
	if left <= 0 {
		return threshold, true, minLook
	}
	return threshold, false, min(max(time.Duration(float64(left)/growth*float64(time.Second)), minLook), maxLook)
}

// nearlyOutOfMemory is why a command that has its container for itself is ended.
var nearlyOutOfMemory = Stop{
	Reason: result.OOMKilled, Kill: true,
	Message: "The command was killed because the container had used 95 % of its memory.",
}

// WithinMemory returns a context for a command that has its container for itself. Where the kernel kills all processes of a
// container together for memory, this one among them, the context ends shortly before, so that the outcome of the command
// isn't lost. Otherwise it is ctx: the kernel kills the command alone. stop ends the watch; it must be called.
func WithinMemory(ctx context.Context) (within context.Context, stop func()) {
	g := FindMemoryGroup()
	if g == nil || !g.EndsTogether() {
		return ctx, func() {}
	}
	return withinMemory(ctx, g)
}

func withinMemory(ctx context.Context, m Memory) (within context.Context, stop func()) {
	within, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_, isExceeded, next := LookAtMemory(m)
			if isExceeded {
				cancel(nearlyOutOfMemory)
				return
			}
			timer := time.NewTimer(next)
			select {
			case <-timer.C:
			case <-within.Done():
				timer.Stop()
				return
			}
		}
	}()
	return within, func() {
		cancel(nil)
		<-ended
	}
}

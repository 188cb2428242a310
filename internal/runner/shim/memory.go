package shim

import (
	"cmp"
	"slices"
	"time"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/proc"
)

// memory is that of the container.
type memory interface {
	// Limit is how much there is; ok is false when there is no limit.
	Limit() (limit int64, ok bool)
	// Used is how much is in use, Needed how much of it the kernel can't take back. Needed takes longer to find out.
	Used() int64
	Needed() int64
}

func findMemory() memory {
	if g := runner.FindMemoryGroup(); g != nil {
		return g
	}
	return nil
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

// outOfMemory is why the largest command is ended.
var outOfMemory = runner.Stop{
	Reason: result.OOMKilled, Kill: true,
	Message: "The command was killed because the container had used 95 % of its memory, and of all commands that ran it used the most.",
}

// watch looks at the memory while commands run.
func (p *Pool) watch(stop <-chan struct{}) {
	for {
		select {
		case <-p.busy:
		case <-stop:
			return
		}
		for p.isBusy() {
			timer := time.NewTimer(p.checkMemory())
			select {
			case <-timer.C:
			case <-stop:
				timer.Stop()
				return
			}
		}
	}
}

func (p *Pool) isBusy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.running) > 0
}

// checkMemory ends the largest command if too much is needed, and returns when to look again.
func (p *Pool) checkMemory() time.Duration {
	limit, ok := p.memory.Limit()
	if !ok {
		return limitLook
	}
	threshold := limit / 100 * memoryPercent
	left := threshold - p.memory.Used()
	if left <= 0 {
		left = threshold - p.memory.Needed()
	}
	if left <= 0 {
		p.endLargest(threshold)
		return minLook
	}
	return min(max(time.Duration(float64(left)/growth*float64(time.Second)), minLook), maxLook)
}

// endLargest ends the command that takes the most memory, unless one is being ended, or less than the threshold is needed
// by now: the largest may just have ended.
func (p *Pool) endLargest(threshold int64) {
	p.mu.Lock()
	calls := make(map[int]*call, len(p.running))
	for c := range p.running {
		calls[c.shim.pid] = c
	}
	p.mu.Unlock()
	var pids []int
	for pid, c := range calls {
		if c.killed {
			return
		}
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		return
	}
	used := proc.MemoryBelow(pids)
	if p.memory.Needed() < threshold {
		return
	}
	largest := slices.MaxFunc(pids, func(a, b int) int { return cmp.Compare(used[a], used[b]) })
	calls[largest].killed = true
	calls[largest].kill <- outOfMemory
}

package shim

import (
	"cmp"
	"maps"
	"slices"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/proc"
)

// outOfMemory is why the largest command is ended.
var outOfMemory = runner.Stop{
	Reason: result.OOMKilled, Kill: true,
	Message: "The command was killed because the container had used 95 % of its memory, and of all commands that ran it used the most.",
}

// endLargest ends the command that takes the most memory, unless one is being ended, or less than the threshold is needed
// by now: the largest may just have ended.
func (p *Pool) endLargest(threshold int64) {
	p.mu.Lock()
	calls := make(map[int]*call, len(p.running))
	isEnding := false
	for c := range p.running {
		calls[c.shim.pid] = c
		isEnding = isEnding || c.killed
	}
	p.mu.Unlock()
	if isEnding || len(calls) == 0 {
		return
	}
	pids := slices.Collect(maps.Keys(calls))
	used := proc.MemoryBelow(pids)
	if p.memory.Needed() < threshold {
		return
	}
	largest := slices.MaxFunc(pids, func(a, b int) int { return cmp.Compare(used[a], used[b]) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := calls[largest]; !c.killed {
		c.killed = true
		c.kill <- outOfMemory
	}
}

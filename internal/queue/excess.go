package queue

import (
	"fmt"
	"time"
)

// Message says to the requester what is exceeded, and what would pass.
func (e *Excess) Message() string {
	if e.Never {
		return e.refusal()
	}
	switch e.Resource {
	case PendingBytes:
		return fmt.Sprintf("ToolBudget %q lets pending calls hold %d bytes of input together (maxPendingBytes), and this call has %d: it waits until others have started", e.Budget, e.Limit, e.Amount)
	case Sessions:
		return fmt.Sprintf("ToolBudget %q lets %d sessions have a pod at the same time (maxSessions): the session waits until another one has ended", e.Budget, e.Limit)
	case CPUMilliseconds:
		return fmt.Sprintf("ToolBudget %q gives %d seconds of CPU time in an hour (cpuSecondsPerHour), and they are used: the call waits until %s", e.Budget, e.Limit/1000, e.Until.Format(time.RFC3339))
	default:
		return fmt.Sprintf("ToolBudget %q lets %d calls run at the same time (maxConcurrentCalls): the call waits until another one has ended", e.Budget, e.Limit)
	}
}

func (e *Excess) refusal() string {
	switch e.Resource {
	case PendingBytes:
		return fmt.Sprintf("the call has %d bytes of input, and ToolBudget %q lets all pending calls together hold %d (maxPendingBytes): make the input smaller", e.Amount, e.Budget, e.Limit)
	case Sessions:
		return fmt.Sprintf("ToolBudget %q lets no session have a pod (maxSessions is %d)", e.Budget, e.Limit)
	case CPUMilliseconds:
		return fmt.Sprintf("ToolBudget %q gives no CPU time (cpuSecondsPerHour is 0)", e.Budget)
	default:
		return fmt.Sprintf("ToolBudget %q lets no call run (maxConcurrentCalls is %d)", e.Budget, e.Limit)
	}
}

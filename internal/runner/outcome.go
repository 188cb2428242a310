package runner

import (
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
)

// outcome returns what is known after the end.
func (r *run) outcome() result.Outcome {
	if r.startedAt.IsZero() {
		return result.Outcome{Reason: r.stop.Reason, Message: r.stop.Message}
	}
	if r.endedAt.IsZero() {
		r.endedAt = r.cmd.now()
	}
	o := result.Outcome{
		Started:   true,
		OOMKilled: r.oomHappened(),
		// Without the monotonic part, which has no meaning elsewhere.
		StartTime:      r.startedAt.Round(0),
		CompletionTime: r.endedAt.Round(0),
		DurationMS:     r.endedAt.Sub(r.startedAt).Milliseconds(),
		LeftRunning:    r.leftRunning,
		Usage:          r.usage(),
	}
	r.describeEnd(&o)
	if r.inside != nil {
		r.inside.Report(&o)
	}
	r.connections.report(&o)
	r.reportSelf(&o)
	if r.survivors {
		o.Message += " Some of its processes had not ended " + seconds(killLimit) + " after SIGKILL."
	}
	return o
}

func (r *run) oomHappened() bool {
	after, known := r.cmd.oomKills()
	return known && after > r.oomBefore
}

// describeEnd sets reason, message, exit code and signal.
func (r *run) describeEnd(o *result.Outcome) {
	signaled := r.status != nil && r.status.Signaled()
	if signaled {
		o.Signal = signalName(r.status.Signal())
	}
	switch {
	case r.stop != nil:
		o.Reason, o.Message = r.stop.Reason, r.stop.Message
	case r.status == nil:
		o.Reason, o.Message = result.Signaled, "The command could not be ended."
	case signaled && o.OOMKilled && r.status.Signal() == unix.SIGKILL:
		o.Reason, o.Message = result.OOMKilled, outOfMemory
	case signaled:
		o.Reason, o.Message = result.Signaled, "The command was ended by "+o.Signal+"."
	default:
		r.describeExit(o, r.status.ExitStatus())
	}
}

const outOfMemory = "The kernel killed the command for using more memory than its environment allows."

// killedChild is the exit code of a shell whose last command was ended by SIGKILL.
const killedChild = 128 + int(unix.SIGKILL)

func (r *run) describeExit(o *result.Outcome, code int) {
	if o.OOMKilled && code == killedChild {
		o.Reason, o.Message = result.OOMKilled, outOfMemory
		return
	}
	o.ExitCode = result.Exit(int32(code))
	o.Reason, o.Message = result.NonZeroExit, fmt.Sprintf("The command exited with code %d.", code)
	if code == 0 {
		o.Reason = result.Completed
	}
	switch {
	case o.OOMKilled && r.cmd.Beside:
		o.Message += " While it ran, the kernel killed a process of the container for memory; that may have been another command's."
	case o.OOMKilled:
		o.Message += " While it ran, the kernel killed one of its processes for memory."
	}
}

func signalName(s unix.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(int(s))
}

// seconds formats a limit: "5 s", "0.25 s".
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
}

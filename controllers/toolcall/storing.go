package toolcall

import (
	"time"

	"toolcall.dev/operator/controllers/output"
)

// storeWait is how long the end of a call waits for its output to be stored.
const storeWait = 2 * time.Second

// outputOf says which output of the call is to be kept.
func (o *observation) outputOf() output.Of {
	of := output.Of{Call: o.name, UID: o.call.UID, KeyHash: o.keyHash()}
	if d := o.decision; d != nil {
		of.StatusBytes, of.KeepBytes = int64(d.MaxBytesPerStream), d.KeepBytesPerStream
	}
	return of
}

// storeOutput has what the status of a call that has just ended shortens, or names, stored, and says in that status how far it is.
// The status isn't to be written before left is over: until then all may be stored.
func (r *Reconciler) storeOutput(o *observation, e *effects, isGone bool) (left time.Duration) {
	of, s := o.outputOf(), e.status
	if s.File != nil || of.KeyHash == "" {
		return 0
	}
	if r.Outputs == nil {
		if !isGone {
			of.AddPodHints(o.call, s)
		}
		return 0
	}
	wanted := of.Wanted(s)
	if len(wanted) == 0 {
		return 0
	}
	states, since := r.Outputs.Finish(of, wanted, o.now, isGone)
	of.SetStored(s, o.call.Generation, o.now, states)
	output.AddHints(o.call, s)
	if !output.IsStoring(s) {
		return 0
	}
	return max(since.Add(storeWait).Sub(o.now), 0)
}

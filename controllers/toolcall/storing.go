package toolcall

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/toolsession"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/store"
)

const (
	// storeWait is how long the end of a call waits for its output to be stored.
	storeWait = 2 * time.Second
	// storePatience is for how long after its end a call's output is read from its pod, and storeLimit when what isn't stored by
	// then is lost, whatever the store does.
	storePatience = 5 * time.Minute
	storeLimit    = storePatience + time.Minute
)

// outputOf says which output of the call is to be kept.
func (o *observation) outputOf() outputOf {
	of := outputOf{call: o.key(), uid: o.call.UID, keyHash: o.keyHash()}
	if d := o.decision; d != nil {
		of.statusBytes, of.keepBytes = int64(d.MaxBytesPerStream), d.KeepBytesPerStream
	}
	return of
}

// streamsOf are the streams of a status, by their names.
func streamsOf(s *v1alpha1.ToolCallStatus) map[output.Stream]*v1alpha1.StreamStatus {
	if s.Streams == nil {
		return nil
	}
	return map[output.Stream]*v1alpha1.StreamStatus{output.Stdout: &s.Streams.Stdout, output.Stderr: &s.Streams.Stderr}
}

// isStoring says that the status has a stream that is on its way to the store.
func isStoring(s *v1alpha1.ToolCallStatus) bool { return len(streamsIn(s, v1alpha1.StreamStoring)) > 0 }

// streamsIn are the streams of a status that are in a state, in their order.
func streamsIn(s *v1alpha1.ToolCallStatus, state v1alpha1.StreamState) (in []output.Stream) {
	for name, stream := range streamsOf(s) {
		if stream.State == state {
			in = append(in, name)
		}
	}
	slices.Sort(in)
	return in
}

// storeOutput has the streams stored that the status of a call shortens which has just ended, and says in that status how far
// they are. The status isn't to be written before left is over: until then they may be stored.
func (r *Reconciler) storeOutput(o *observation, s *v1alpha1.ToolCallStatus, isGone bool) (left time.Duration) {
	of := o.outputOf()
	if r.Outputs == nil || s.File != nil || !of.isKept() {
		return 0
	}
	var shortened []output.Stream
	for name, stream := range streamsOf(s) {
		if stream.Truncated {
			shortened = append(shortened, name)
		}
	}
	if len(shortened) == 0 {
		return 0
	}
	states, since := r.Outputs.finish(of, shortened, o.now, isGone)
	o.setStored(s, states)
	addHints(o.call, s)
	if !isStoring(s) {
		return 0
	}
	return max(since.Add(storeWait).Sub(o.now), 0)
}

// setStored says in a status how far streams are stored.
func (o *observation) setStored(s *v1alpha1.ToolCallStatus, states map[output.Stream]store.Status) {
	var failing error
	for name, stream := range streamsOf(s) {
		if state, has := states[name]; has {
			stream.State, stream.Kept = v1alpha1.StreamState(state.State), ptr.To(state.Kept)
			if state.State == store.Storing && state.Err != nil {
				failing = state.Err
			}
		}
	}
	value, reason, message := metav1.ConditionFalse, v1alpha1.ReasonOutputBeingStored, "the output is on its way to the output store"
	switch {
	case isStoring(s) && failing != nil:
		reason, message = v1alpha1.ReasonOutputStoreFailing, "the output store doesn't take the output at the moment; the operator tries again for five minutes, and its log says more"
	case isStoring(s):
	case len(streamsIn(s, v1alpha1.StreamLost)) > 0:
		reason, message = v1alpha1.ReasonOutputLost, "something of the output that should have been kept isn't stored: the output store or the call's pod was away; the operator's log says more"
	case meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionOutputStored) == nil:
		// It was stored in time: the streams say all.
		return
	default:
		value, reason, message = metav1.ConditionTrue, v1alpha1.ReasonOutputKept, "the output is in the output store"
	}
	o.set(s, v1alpha1.ConditionOutputStored, value, reason, message)
}

// goOnStoring looks after the output of a call whose status says that it is being stored: it says what came of it when that is
// known, and until then when to look again. It is false while the runner is to be kept.
func (r *Reconciler) goOnStoring(ctx context.Context, o *observation, e *effects) (done bool, err error) {
	storing := streamsIn(&o.call.Status, v1alpha1.StreamStoring)
	if len(storing) == 0 {
		return true, nil
	}
	ended := sinceFinished(o.call)
	isGone := !o.now.Before(ended.Add(storePatience))
	if !isGone {
		if isGone, err = r.isSourceGone(ctx, o); err != nil {
			return false, err
		}
	}
	of := o.outputOf()
	// What the policy lets be kept isn't known any more, and the runner keeps no more than that.
	of.keepBytes = store.MaxLimit
	states, _ := r.Outputs.finish(of, storing, o.now, isGone)
	if isAnyStoring(states) && o.now.Before(ended.Add(storeLimit)) {
		e.wakeIn(host.RetryPause)
		return false, nil
	}
	if isAnyStoring(states) {
		r.Outputs.cancel(of)
		for name, s := range states {
			if s.State == store.Storing {
				states[name] = store.Status{State: store.Lost}
			}
		}
	}
	now, err := r.Objects.LiveCall(ctx, o.key())
	if err != nil || now == nil || now.UID != o.call.UID || !isStoring(&now.Status) {
		return err == nil, err
	}
	e.written = o.withCall(now)
	e.status = now.Status.DeepCopy()
	o.setStored(e.status, states)
	return true, nil
}

func isAnyStoring(states map[output.Stream]store.Status) bool {
	for _, s := range states {
		if s.State == store.Storing {
			return true
		}
	}
	return false
}

// withCall is the observation of a call as the API server has it now.
func (o *observation) withCall(now *v1alpha1.ToolCall) *observation {
	next := *o
	next.call = now
	return &next
}

// isSourceGone says that nobody has what the call wrote: its pod has ended, or its session has another one.
func (r *Reconciler) isSourceGone(ctx context.Context, o *observation) (bool, error) {
	if v := o.session; v != nil {
		switch {
		case v.Session == nil || v.Host == nil || v.orphaned:
			return true, nil
		case v.Host.Runner != nil:
			return false, nil
		}
		why, err := toolsession.Gone(ctx, r.Objects, v.Session)
		return why != "", err
	}
	if o.runner != nil || !o.isBound() {
		return !o.isBound(), nil
	}
	pod, err := r.Objects.PodByUID(ctx, types.NamespacedName{Namespace: o.call.Namespace, Name: o.call.Status.Pod}, o.call.Status.Runner.PodUID)
	return err == nil && (pod == nil || host.HasPodEnded(pod)), err
}

package toolcall

import (
	"context"
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
	of := outputOf{call: o.name, uid: o.call.UID, keyHash: o.keyHash()}
	if d := o.decision; d != nil {
		of.statusBytes, of.keepBytes = int64(d.MaxBytesPerStream), d.KeepBytesPerStream
	}
	return of
}

// storedPart is what a status says of a stream or an artifact. One of both is nil.
type storedPart struct {
	key      output.Key
	stream   *v1alpha1.StreamStatus
	artifact *v1alpha1.Artifact
}

// isWanted says that the output store is asked to keep it, when the call has ended.
func (p *storedPart) isWanted(of *outputOf) bool {
	return p.artifact != nil || p.stream.Truncated && of.isKept() || p.stream.InvalidUTF8 && of.keepBytes > 0
}

// state is empty for what the output store isn't asked to keep.
func (p *storedPart) state() store.State {
	if p.artifact != nil {
		return store.State(p.artifact.State)
	}
	return store.State(p.stream.State)
}

// kept is how many bytes of it the store has, when its state is final.
func (p *storedPart) kept() int64 {
	switch {
	case p.stream != nil:
		return ptr.Deref(p.stream.Kept, 0)
	case p.state() == store.Complete:
		return p.artifact.Bytes
	}
	return 0
}

func (p *storedPart) set(status store.Status) {
	if p.artifact != nil {
		p.artifact.State = v1alpha1.ArtifactState(status.State)
		return
	}
	p.stream.State, p.stream.Kept = v1alpha1.StreamState(status.State), ptr.To(status.Kept)
}

// partsOf are the streams and the artifacts of a status.
func (of *outputOf) partsOf(s *v1alpha1.ToolCallStatus) (parts []storedPart) {
	if s.Streams != nil {
		parts = append(parts, storedPart{key: of.key(output.Stdout), stream: &s.Streams.Stdout}, storedPart{key: of.key(output.Stderr), stream: &s.Streams.Stderr})
	}
	for i := range s.Artifacts {
		key := of.key("")
		key.Artifact = s.Artifacts[i].Path
		parts = append(parts, storedPart{key: key, artifact: &s.Artifacts[i]})
	}
	return parts
}

// isStoring says that something of a status is on its way to the store.
func isStoring(s *v1alpha1.ToolCallStatus) bool { return s.OutputState == v1alpha1.OutputStoring }

// storeOutput has stored what the status shortens, or names, of a call that has just ended, and says in that status how far
// that is. The status isn't to be written before left is over: until then all may be stored.
func (r *Reconciler) storeOutput(o *observation, s *v1alpha1.ToolCallStatus, isGone bool) (left time.Duration) {
	of := o.outputOf()
	if s.File != nil || of.keyHash == "" {
		return 0
	}
	if r.Outputs == nil {
		if !isGone {
			addPodHints(o.call, &of, s)
		}
		return 0
	}
	var wanted []output.Key
	for _, part := range of.partsOf(s) {
		if part.isWanted(&of) {
			wanted = append(wanted, part.key)
		}
	}
	if len(wanted) == 0 {
		return 0
	}
	states, since := r.Outputs.finish(of, wanted, o.now, isGone)
	o.setStored(s, states)
	addHints(o.call, s)
	if !isStoring(s) {
		return 0
	}
	return max(since.Add(storeWait).Sub(o.now), 0)
}

// setStored says in a status how far its parts are stored.
func (o *observation) setStored(s *v1alpha1.ToolCallStatus, states map[output.Key]store.Status) {
	of := o.outputOf()
	var failing error
	found := map[store.State]bool{}
	for _, part := range of.partsOf(s) {
		if now, has := states[part.key]; has {
			part.set(now)
			if now.State == store.Storing && now.Err != nil {
				failing = now.Err
			}
		}
		found[part.state()] = true
	}
	value, reason, message := metav1.ConditionFalse, v1alpha1.ReasonOutputBeingStored, "the output is on its way to the output store"
	switch {
	case found[store.Storing]:
		s.OutputState = v1alpha1.OutputStoring
		if failing != nil {
			reason, message = v1alpha1.ReasonOutputStoreFailing, "the output store doesn't take the output at the moment; the operator tries again for five minutes, and its log says more"
		}
	case found[store.Lost]:
		s.OutputState = v1alpha1.OutputLost
		reason, message = v1alpha1.ReasonOutputLost, "something of the output that should have been kept isn't stored: the output store or the call's pod was away, or the pod's disk was full or too slow; the operator's log says more"
	default:
		s.OutputState = v1alpha1.OutputComplete
		if meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionOutputStored) == nil {
			// It was stored in time: the streams say all.
			return
		}
		value, reason, message = metav1.ConditionTrue, v1alpha1.ReasonOutputKept, "the output is in the output store"
	}
	o.set(s, v1alpha1.ConditionOutputStored, value, reason, message)
}

// goOnStoring looks after the output of a call whose status says that it is being stored: it says what came of it when that is
// known, and until then when to look again. It is false while the runner is to be kept.
func (r *Reconciler) goOnStoring(ctx context.Context, o *observation, e *effects) (done bool, err error) {
	if !isStoring(&o.call.Status) {
		return true, nil
	}
	ended := o.call.FinishedAt()
	isGone := !o.now.Before(ended.Add(storePatience))
	if !isGone {
		if isGone, err = r.isSourceGone(ctx, o); err != nil {
			return false, err
		}
	}
	of := o.outputOf()
	// What the policy lets be kept isn't known any more, and the runner keeps no more than that.
	of.keepBytes = store.MaxLimit
	var storing []output.Key
	for _, part := range of.partsOf(&o.call.Status) {
		if part.state() == store.Storing {
			storing = append(storing, part.key)
		}
	}
	states, _ := r.Outputs.finish(of, storing, o.now, isGone)
	if isAnyStoring(states) && o.now.Before(ended.Add(storeLimit)) {
		e.wakeIn(host.RetryPause)
		return false, nil
	}
	if isAnyStoring(states) {
		r.Outputs.cancel(of)
		for key, s := range states {
			if s.State == store.Storing {
				states[key] = store.Status{State: store.Lost}
			}
		}
	}
	now, err := r.Objects.LiveCall(ctx, o.name)
	if err != nil || now == nil || now.UID != o.call.UID || !isStoring(&now.Status) {
		return err == nil, err
	}
	e.written = o.withCall(now)
	e.status = now.Status.DeepCopy()
	o.setStored(e.status, states)
	dropHints(o.call, e.status)
	return true, nil
}

func isAnyStoring(states map[output.Key]store.Status) bool {
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

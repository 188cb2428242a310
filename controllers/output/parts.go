package output

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/store"
)

// storedPart is what a status says of a stream or an artifact. One of both is nil.
type storedPart struct {
	key      output.Key
	stream   *v1alpha1.StreamStatus
	artifact *v1alpha1.Artifact
}

// isWanted says that the output store is asked to keep it, when the call has ended.
func (p *storedPart) isWanted(of *Of) bool {
	return p.artifact != nil || p.stream.Truncated && of.isKept() || p.stream.InvalidUTF8 && of.KeepBytes > 0
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
		p.artifact.State = v1alpha1.OutputState(status.State)
		return
	}
	p.stream.State, p.stream.Kept = v1alpha1.StreamState(status.State), ptr.To(status.Kept)
}

// partsOf are the streams and the artifacts of a status.
func (of *Of) partsOf(s *v1alpha1.ToolCallStatus) (parts []storedPart) {
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

// IsStoring says that something of a status is on its way to the store.
func IsStoring(s *v1alpha1.ToolCallStatus) bool { return s.OutputState == v1alpha1.OutputStoring }

// Wanted are the streams and artifacts of a call that has ended which the output store is asked to keep.
func (of *Of) Wanted(s *v1alpha1.ToolCallStatus) (wanted []output.Key) {
	for _, part := range of.partsOf(s) {
		if part.isWanted(of) {
			wanted = append(wanted, part.key)
		}
	}
	return wanted
}

// SetStored says in the status of a call, of a generation, how far its parts are stored now.
func (of *Of) SetStored(s *v1alpha1.ToolCallStatus, generation int64, now time.Time, states map[output.Key]store.Status) {
	storeFails, found := false, map[store.State]bool{}
	for _, part := range of.partsOf(s) {
		if is, has := states[part.key]; has {
			part.set(is)
			storeFails = storeFails || is.State == store.Storing && is.StoreFails()
		}
		found[part.state()] = true
	}
	value, reason, message := metav1.ConditionFalse, v1alpha1.ReasonOutputBeingStored, "the output is on its way to the output store"
	switch {
	case found[store.Storing]:
		s.OutputState = v1alpha1.OutputStoring
		if storeFails {
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
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionOutputStored, Status: value, Reason: reason, Message: message, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	})
}

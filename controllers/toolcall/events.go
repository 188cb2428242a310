package toolcall

import (
	"context"
	"path"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/metrics"
)

// announce tells the world of a transition that was just recorded.
func (r *applier) announce(ctx context.Context, o *observation, after *v1alpha1.ToolCall) {
	r.announceApproval(o.call, after)
	s := &after.Status
	if o.call.Status.Phase == s.Phase || !s.Phase.Terminal() {
		return
	}
	metrics.CountFinished(after.Namespace, s)
	r.Trace.RecordCall(after, program(o.decision, s), o.created, o.now)
	r.recordPrograms(ctx, o, after)
	if s.Phase == v1alpha1.PhaseSucceeded {
		// The status says it all: an Event for each would be a fifth of what a call costs the API server.
		return
	}
	kind := corev1.EventTypeNormal
	if s.Phase == v1alpha1.PhaseFailed || s.Phase == v1alpha1.PhaseDenied {
		kind = corev1.EventTypeWarning
	}
	r.Tell(after, kind, s.Reason, string(s.Phase), s.Message)
}

// announceApproval tells that people are asked about a call, and counts what they decided. The end of a call has an Event of its own, and
// the controller of decisions tells of approvals: such a write beside the start would slow it.
func (r *applier) announceApproval(before, after *v1alpha1.ToolCall) {
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionApproved)
	is := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionApproved)
	asked := after.Status.Approval
	switch {
	case is == nil || asked == nil:
	case is.Status == metav1.ConditionUnknown && (before.Status.Approval == nil || before.Status.Approval.Digest != asked.Digest):
		r.Tell(after, corev1.EventTypeNormal, v1alpha1.ReasonAwaitingApproval, "RequestApproval", is.Message)
	case was != nil && was.Status == is.Status:
	case is.Status == metav1.ConditionTrue:
		metrics.CountApproval(metrics.Approved)
	case is.Reason == v1alpha1.ReasonApprovalDenied:
		metrics.CountApproval(metrics.ApprovalDenied)
	case is.Reason == v1alpha1.ReasonApprovalExpired:
		metrics.CountApproval(metrics.ApprovalExpired)
	}
}

// program is the name of the program that was started for a call which ended; empty for none, or when that isn't known.
func program(d *decide.Decision, s *v1alpha1.ToolCallStatus) string {
	switch {
	case s.StartTime == nil || s.Action == nil || d == nil || s.Action.Type == v1alpha1.ActionFile:
		return ""
	case len(d.ArgvPrefix) > 0:
		return path.Base(d.ArgvPrefix[0])
	default:
		return path.Base(s.Action.Tool)
	}
}

// Tell makes an Event of a call, unless there are too many of its namespace.
func (r *applier) Tell(call *v1alpha1.ToolCall, kind, reason, action, message string) {
	if !r.eventLimits.allow(call.Namespace, r.Clock.Now()) {
		metrics.CountDroppedEvent()
		return
	}
	r.Events.Eventf(call, nil, kind, reason, action, "%s", bounds.Note(message))
}

// Bounds of the Events about one namespace's calls, and of the records in the log: a flood of denials must not fill etcd
// or the log, nor hide what else happens.
const (
	ratePerSecond = 5
	rateBurst     = 100
	// maxLimitedNamespaces bounds the namespaces that are remembered; the one that was quiet the longest is forgotten.
	maxLimitedNamespaces = 4096
)

// rateLimits bounds what is written about calls, namespace by namespace. Two that are the first of a namespace at the same time
// may each count for themselves.
type rateLimits struct{ limiters *lru.Cache }

func newRateLimits() *rateLimits { return &rateLimits{limiters: lru.New(maxLimitedNamespaces)} }

// allow says whether the namespace may have another one.
func (l *rateLimits) allow(namespace string, now time.Time) bool {
	limiter, ok := l.limiters.Get(namespace)
	if !ok {
		limiter = rate.NewLimiter(ratePerSecond, rateBurst)
		l.limiters.Add(namespace, limiter)
	}
	return limiter.(*rate.Limiter).AllowN(now, 1)
}

package toolsession

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
)

// hadPod says that the session has had a pod, and with it its claim.
func hadPod(session *v1alpha1.ToolSession) bool { return session.Status.Incarnation > 0 }

// lostFiles says why a session can't have another pod: its claim isn't there any more. Empty when it is, or when the session
// hasn't had a pod. An empty claim in its place would have calls go on without the files that they made.
func (r *observer) lostFiles(ctx context.Context, o *observation) (why string, err error) {
	if !o.hasWorkspace() || !hadPod(o.session) {
		return "", nil
	}
	claim, err := r.liveClaim(ctx, o)
	switch {
	case err != nil:
		return "", err
	case claim == nil || claim.DeletionTimestamp != nil:
		return fmt.Sprintf("PersistentVolumeClaim %s was deleted, and the session's files with it", jobspec.ClaimName(o.session)), nil
	case !jobspec.IsClaimOf(claim, o.session):
		return fmt.Sprintf("PersistentVolumeClaim %s isn't the one that the operator made for this session, or somebody changed its labels", claim.Name), nil
	default:
		return "", nil
	}
}

// diagnoseClaim says why the session's claim has no volume; nil when it has one. The pod's own word on that is less.
func (r *observer) diagnoseClaim(ctx context.Context, o *observation) (*host.Problem, error) {
	if !o.hasWorkspace() {
		return nil, nil
	}
	claim, err := r.liveClaim(ctx, o)
	if err != nil || claim == nil || claim.Status.Phase == corev1.ClaimBound {
		return nil, err
	}
	last, err := host.LastEvent(ctx, r.Objects, claim, bindingFailures...)
	if err != nil {
		return nil, err
	}
	if last == nil {
		last = &corev1.Event{}
	}
	return &host.Problem{
		Reason:  v1alpha1.ReasonUnschedulable,
		Message: host.Sentence(fmt.Sprintf("PersistentVolumeClaim %s is %s", claim.Name, claim.Status.Phase), last.Reason, last.Message),
	}, nil
}

// bindingFailures are the reasons of Events by which the control plane and provisioners say that a claim gets no volume.
var bindingFailures = []string{"ProvisioningFailed", "FailedBinding"}

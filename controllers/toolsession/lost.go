package toolsession

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
)

// Gone says why the process that a session records is proven to be gone; empty when it isn't. The proofs are: the kubelet
// reports that its container has terminated, in the pod or by the Job, which ends only after its pod has; or its Node is
// deleted, or tainted as out of service. That the pod's object is missing proves nothing: it can be deleted by force, while
// the process goes on.
func Gone(ctx context.Context, objects apicache.Reader, session *v1alpha1.ToolSession) (why string, err error) {
	s := &session.Status
	if s.Runner == nil || s.Pod == "" {
		return "", nil
	}
	if s.Reason == v1alpha1.ReasonPodLost {
		// It was proven before, by what may not be there any more.
		return fmt.Sprintf("pod %s was lost", s.Pod), nil
	}
	pod, err := objects.PodByUID(ctx, types.NamespacedName{Namespace: session.Namespace, Name: s.Pod}, s.Runner.PodUID)
	if err != nil {
		return "", err
	}
	if pod != nil && host.HasPodEnded(pod) {
		return host.Sentence(fmt.Sprintf("pod %s ended", s.Pod), host.WhyPodEnded(pod), ""), nil
	}
	job, err := objects.Job(ctx, types.NamespacedName{Namespace: session.Namespace, Name: s.Job})
	if err != nil {
		return "", err
	}
	if job != nil && jobspec.HasEnded(job) {
		return fmt.Sprintf("the Job of pod %s ended", s.Pod), nil
	}
	gone, err := objects.IsNodeGone(ctx, s.Node)
	if err != nil || !gone {
		return "", err
	}
	return fmt.Sprintf("the node of pod %s, %s, is gone or out of service", s.Pod, s.Node), nil
}

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

// A Loss says why the process that a session records is gone, and whether the kernel killed its container for memory.
type Loss struct {
	Why         string
	OutOfMemory bool
}

// Gone says that the process that a session records is proven to be gone; nil when it isn't. The proofs are: the kubelet
// reports that its container has terminated, in the pod or by the Job, which ends only after its pod has; or its Node is
// deleted, or tainted as out of service. That the pod's object is missing proves nothing: it can be deleted by force, while
// the process goes on.
func Gone(ctx context.Context, objects apicache.Reader, session *v1alpha1.ToolSession) (*Loss, error) {
	s := &session.Status
	if s.Runner == nil || s.Pod == "" {
		return nil, nil
	}
	pod, err := objects.PodByUID(ctx, types.NamespacedName{Namespace: session.Namespace, Name: s.Pod}, s.Runner.PodUID)
	if err != nil {
		return nil, err
	}
	if pod != nil && host.HasPodEnded(pod) {
		why := host.Sentence(fmt.Sprintf("pod %s ended", s.Pod), host.WhyPodEnded(pod), "")
		return &Loss{Why: why, OutOfMemory: host.WasKilledForMemory(pod)}, nil
	}
	if s.Reason == v1alpha1.ReasonPodLost {
		// It was proven before, by what isn't there any more.
		return &Loss{Why: fmt.Sprintf("pod %s was lost", s.Pod)}, nil
	}
	job, err := objects.Job(ctx, types.NamespacedName{Namespace: session.Namespace, Name: s.Job})
	if err != nil {
		return nil, err
	}
	if job != nil && jobspec.HasEnded(job) {
		return &Loss{Why: fmt.Sprintf("the Job of pod %s ended", s.Pod)}, nil
	}
	gone, err := objects.IsNodeGone(ctx, s.Node)
	if err != nil || !gone {
		return nil, err
	}
	return &Loss{Why: fmt.Sprintf("the node of pod %s, %s, is gone or out of service", s.Pod, s.Node)}, nil
}

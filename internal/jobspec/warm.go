package jobspec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// AnnotationTemplate holds, on a Job of a warm pool, the hash of what it was made from.
const AnnotationTemplate = "toolcall.dev/template"

// AnnotationPoolSeal proves, on a Job of a warm pool, that the operator made it.
const AnnotationPoolSeal = "toolcall.dev/pool-seal"

// LabelPool is, on a Job of a warm pool, the UID of its environment. It stays when a call adopts the Job.
const LabelPool = "toolcall.dev/pool-uid"

// PoolSelector finds the pods of an environment's warm pool, those among them that a call took included.
func PoolSelector(env *v1alpha1.ExecutionEnvironment) string {
	return labels.SelectorFromSet(labels.Set{LabelPool: string(env.UID)}).String()
}

// WarmInput is all that a Job of a warm pool depends on.
type WarmInput struct {
	Environment *v1alpha1.ExecutionEnvironment
	// Default is the namespace's default environment, if that is another one: a waiting pod is replaced when it changes.
	Default *v1alpha1.ExecutionEnvironment
	// Refs are the variables of every call in the environment that the kubelet resolves.
	Refs []corev1.EnvVar
	// ReplaceOn is what else a waiting pod is replaced for when it changes, e.g. the policy's generation.
	ReplaceOn []string
	// RestrictsNetwork says that the policy has network rules.
	RestrictsNetwork bool
	Runtime          Runtime
	// Name of the Job.
	Name string
}

// TemplateHash says what a waiting pod is made from: a pod with another one isn't given to a call any more.
func TemplateHash(in WarmInput) (string, error) {
	in.Name = ""
	if len(in.Runtime.Endpoints) > 1 {
		// The first one is the operator's own pod, the fastest way to it. A waiting pod outlives that one, and finds
		// the next by the Service.
		in.Runtime.Endpoints = in.Runtime.Endpoints[1:]
	}
	basis := []any{in.Environment.UID, basisOf(in.Environment), in.Refs, in.ReplaceOn, in.Runtime}
	if in.Default != nil {
		basis = append(basis, in.Default.UID, basisOf(in.Default))
	}
	if in.RestrictsNetwork {
		basis = append(basis, "restricts the network")
	}
	if queue := queueLabels(in.Environment); len(queue) > 0 {
		basis = append(basis, queue)
	}
	raw, err := json.Marshal(basis)
	if err != nil {
		return "", fmt.Errorf("encode the pool's template: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16]), nil
}

// basisOf is an environment's spec without what no pod depends on; of the queues it depends on the first, which is a label.
func basisOf(env *v1alpha1.ExecutionEnvironment) *v1alpha1.ExecutionEnvironmentSpec {
	spec := env.Spec.DeepCopy()
	spec.WarmPool, spec.MaxConcurrentCalls, spec.TTLSecondsAfterFinished, spec.StartTimeoutSeconds = nil, nil, nil, nil
	spec.Queues, spec.Suspend, spec.Sessions = nil, false, nil
	return spec
}

// BuildWarm makes a Job whose runner waits for a call. It has no deadline until a call adopts it, and no owner:
// Kubernetes would delete the Job with the environment, also right after a call was given its pod. The operator deletes
// it instead; without an operator its runner ends by itself.
func BuildWarm(in WarmInput, hash string, sealer Sealer) *batchv1.Job {
	env := in.Environment
	job := build(jobParts{
		namespace: env.Namespace,
		name:      in.Name,
		pool:      env.Name,
		labels: map[string]string{
			LabelPool:    string(env.UID),
			LabelNetwork: NetworkAllowed,
		},
		env:     env,
		refs:    in.Refs,
		runtime: in.Runtime,

		restrictsNetwork: in.RestrictsNetwork,
	})
	job.Annotations = map[string]string{
		AnnotationPool:     env.Name,
		AnnotationTemplate: hash,
		AnnotationPoolSeal: sealer.Seal(poolContext(job, hash, podDigest(&job.Spec.Template.Spec))...),
	}
	return job
}

func poolContext(job *batchv1.Job, hash, digest string) []string {
	return []string{"pool", job.Namespace, job.Name, job.Labels[LabelPool], hash, digest}
}

// IsPoolJob says that the operator made the Job, with this very pod, for a warm pool. What merely looks like that is
// nothing that the operator may delete. The Job has been through Slim.
func IsPoolJob(job *batchv1.Job, sealer Sealer) bool {
	return sealer.CheckSeal(job.Annotations[AnnotationPoolSeal], poolContext(job, job.Annotations[AnnotationTemplate], job.Annotations[annotationPodDigest])...)
}

// PoolOf is the name of the environment whose warm pool a Job says that it belongs to; empty once a call owns it.
func PoolOf(job *batchv1.Job) string {
	if metav1.GetControllerOf(job) != nil {
		return ""
	}
	return job.Annotations[AnnotationPool]
}

// WarmName is the name of a pool's Job; suffix makes it unique.
func WarmName(env *v1alpha1.ExecutionEnvironment, suffix string) string {
	return nameFor("tc-warm-", env.Name, 34, string(env.UID)+"/"+suffix)
}

// Adopt changes a pool's Job into the call's own: owned by it, so that it goes with the call, and with a deadline that
// counts from now. Without a decision the deadline isn't known, and the Job has none.
func Adopt(job *batchv1.Job, call *v1alpha1.ToolCall, decision *decide.Decision, now time.Time) {
	job.OwnerReferences = ownedBy("ToolCall", call)
	metav1.SetMetaDataLabel(&job.ObjectMeta, v1alpha1.LabelCall, string(call.UID))
	if decision != nil {
		setDeadline(job, now, deadlineSeconds(decision))
	}
}

// setDeadline has the Job controller, which counts from the Job's start, end a Job's pod after some seconds from now.
func setDeadline(job *batchv1.Job, now time.Time, seconds int64) {
	elapsed := int64(now.Sub(StartsFrom(job)).Seconds()) + 1
	job.Spec.ActiveDeadlineSeconds = ptr.To(max(elapsed, 0) + seconds)
}

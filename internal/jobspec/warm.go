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
)

// AnnotationTemplate holds, on a Job of a warm pool, the hash of what it was made from.
const AnnotationTemplate = "toolcall.dev/template"

// AnnotationPool names, on a Job and its pod, the environment whose warm pool they were made for.
const AnnotationPool = "toolcall.dev/pool"

// LabelPool is, on a Job of a warm pool, the UID of its environment. It stays when a call adopts the Job.
const LabelPool = "toolcall.dev/pool-uid"

// PoolSelector finds the pods of an environment's warm pool, those among them that a call took included.
func PoolSelector(env *v1alpha1.ExecutionEnvironment) string {
	return labels.SelectorFromSet(labels.Set{LabelPool: string(env.UID)}).String()
}

// WarmInput is all that a Job of a warm pool depends on.
type WarmInput struct {
	Environment *v1alpha1.ExecutionEnvironment
	// Refs are the variables of every call in the environment that the kubelet resolves.
	Refs []corev1.EnvVar
	// Basis is what else a waiting pod is replaced for when it changes, e.g. the policy's generation.
	Basis   []string
	Runtime Runtime
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
	spec := in.Environment.Spec.DeepCopy()
	// A pod doesn't depend on these; of the queues it depends on the first.
	spec.WarmPool, spec.MaxConcurrentCalls, spec.TTLSecondsAfterFinished, spec.StartTimeoutSeconds = nil, nil, nil, nil
	spec.Queues, spec.Suspend = nil, false
	basis := []any{in.Environment.UID, spec, in.Refs, in.Basis, in.Runtime}
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

// BuildWarm makes a Job whose runner waits for a call. It has no deadline until a call adopts it. It has no owner
// either: Kubernetes would delete the Job with the environment, also where a call was given its pod a moment before.
// The operator deletes it instead, and where there is none, its runner ends by itself.
func BuildWarm(in WarmInput, hash string, sealer Sealer) *batchv1.Job {
	env := in.Environment
	job := build(jobParts{
		namespace: env.Namespace,
		name:      in.Name,
		pool:      env.Name,
		labels: map[string]string{
			v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
			LabelPool:               string(env.UID),
			LabelNetwork:            NetworkAllowed,
		},
		env:     &env.Spec,
		refs:    in.Refs,
		runtime: in.Runtime,
	})
	copyInto(job.Labels, queueLabels(env))
	job.Annotations = map[string]string{
		AnnotationPool:     env.Name,
		AnnotationTemplate: hash,
		AnnotationSeal:     sealer.Seal(poolParts(job, hash)...),
	}
	return job
}

func poolParts(job *batchv1.Job, hash string) []string {
	return []string{"pool", job.Namespace, job.Name, job.Labels[LabelPool], hash}
}

// Waits says that the operator made the Job for a warm pool, and that it was no call's when it was read. What merely
// looks like that is nothing that the operator may delete.
func Waits(job *batchv1.Job, sealer Sealer) bool {
	return sealer.CheckSeal(job.Annotations[AnnotationSeal], poolParts(job, job.Annotations[AnnotationTemplate])...)
}

// WarmName is the name of a pool's Job; suffix makes it unique.
func WarmName(env *v1alpha1.ExecutionEnvironment, suffix string) string {
	sum := sha256.Sum256([]byte(string(env.UID) + "/" + suffix))
	return "tc-warm-" + trimmed(env.Name, 34) + "-" + hex.EncodeToString(sum[:5])
}

// Adopt changes a pool's Job into the call's own: owned by it, so that it goes with the call and no longer with
// the environment, with the decided record, and with a deadline that counts from now.
func Adopt(job *batchv1.Job, call *v1alpha1.ToolCall, record *Record, now time.Time, sealer Sealer) error {
	plan, err := record.encode()
	if err != nil {
		return err
	}
	Own(job, call)
	if job.Annotations == nil {
		job.Annotations = map[string]string{}
	}
	copyInto(job.Annotations, sealed(plan, job.Namespace, job.Name, call, sealer))
	started := job.CreationTimestamp.Time
	if job.Status.StartTime != nil {
		started = job.Status.StartTime.Time
	}
	// The Job controller counts its deadline from the Job's start.
	elapsed := int64(now.Sub(started).Seconds()) + 1
	job.Spec.ActiveDeadlineSeconds = ptr.To(max(elapsed, 0) + record.deadlineSeconds())
	return nil
}

// Own makes a pool's Job the call's without what was decided, which is all that can be done when the operator that
// decided it ended before it could be kept: the Job has no deadline of its own then.
func Own(job *batchv1.Job, call *v1alpha1.ToolCall) {
	job.OwnerReferences = []metav1.OwnerReference{ownedByCall(call)}
	if job.Labels == nil {
		job.Labels = map[string]string{}
	}
	job.Labels[v1alpha1.LabelCall] = string(call.UID)
}

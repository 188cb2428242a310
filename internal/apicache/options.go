// Package apicache says what of the cluster the operator keeps in memory, and looks objects up there.
//
// Kept are the fields that the controllers read, of the objects that can still change something: calls that have not
// ended, without large inputs; Jobs and pods that the operator made; sessions and people's decisions; environments, policies,
// budgets and skills. It is a cache of what the API server has: a restart fills it again. What must be certain is read past it.
package apicache

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/jobspec"
)

// Options keep in memory what the controllers read, and nothing else: of calls those that have not ended; of Jobs and
// pods those that the operator made, of each the few fields that count, and of pods none that ended well, since their
// calls have mostly ended too; of the cluster's admission policies those that vouch for requesters; every session. Namespaces limits
// all namespaced kinds; empty for the whole cluster.
func Options(namespaces []string) cache.Options {
	own := labels.SelectorFromSet(labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
	notSucceeded := fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded))
	options := cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&networkingv1.NetworkPolicy{}: {Label: own},
			&batchv1.Job{}:                {Label: own, Transform: transform(jobspec.SlimCached)},
			&corev1.Pod{}:                 {Label: own, Field: notSucceeded, Transform: transform(slimPod)},
			&v1alpha1.ToolCall{}:          {Field: InFlight(), Transform: transform(slimCall)},
			&v1alpha1.ToolSession{}:       {Transform: transform(slimSession)},
			&v1alpha1.ToolBudget{}:        {Transform: transform(slimBudget)},
			&v1alpha1.ToolCallApproval{}:  {Transform: transform(slimApproval)},

			&admissionv1.ValidatingAdmissionPolicy{}: {Transform: transform(func(p *admissionv1.ValidatingAdmissionPolicy) {
				p.Status = admissionv1.ValidatingAdmissionPolicyStatus{}
				slimAdmission(p, &p.Spec)
			})},
			&admissionv1.ValidatingAdmissionPolicyBinding{}: {Transform: transform(func(b *admissionv1.ValidatingAdmissionPolicyBinding) {
				slimAdmission(b, &b.Spec)
			})},
		},
	}
	if len(namespaces) > 0 {
		options.DefaultNamespaces = map[string]cache.Config{}
		for _, name := range namespaces {
			options.DefaultNamespaces[name] = cache.Config{}
		}
	}
	return options
}

// fieldPhase is the field that the API server selects calls by.
const fieldPhase = "status.phase"

// InFlight selects the calls that have not ended. No others are in the cache, so that what the operator needs doesn't
// grow with what the cluster remembers.
func InFlight() fields.Selector {
	var not []fields.Selector
	for _, phase := range v1alpha1.TerminalPhases() {
		not = append(not, fields.OneTermNotEqualSelector(fieldPhase, string(phase)))
	}
	return fields.AndSelectors(not...)
}

// Finished selects the calls that have ended: those whose phase is none of the others.
func Finished() fields.Selector {
	return fields.AndSelectors(
		fields.OneTermNotEqualSelector(fieldPhase, ""),
		fields.OneTermNotEqualSelector(fieldPhase, string(v1alpha1.PhasePending)),
		fields.OneTermNotEqualSelector(fieldPhase, string(v1alpha1.PhaseRunning)),
	)
}

// transform adapts a function of one type, and drops managedFields everywhere.
func transform[T client.Object](slim func(T)) toolscache.TransformFunc {
	return func(o any) (any, error) {
		object, ok := o.(T)
		if !ok {
			return nil, fmt.Errorf("the cache was given a %T", o)
		}
		object.SetManagedFields(nil)
		slim(object)
		return object, nil
	}
}

// slimAdmission leaves the spec out of an admission policy, or its binding, that vouches for nobody's requester: the API server
// can't select those that do.
func slimAdmission[T any](o client.Object, spec *T) {
	if !access.Vouches(o.GetName()) {
		var none T
		*spec = none
		o.SetAnnotations(nil)
	}
}

// slimBudget leaves out what nobody reads and anybody may fill.
func slimBudget(budget *v1alpha1.ToolBudget) {
	budget.Labels, budget.Annotations, budget.OwnerReferences = nil, nil, nil
}

// slimApproval does the same of a decision, which names its approver.
func slimApproval(decision *v1alpha1.ToolCallApproval) {
	decision.Labels, decision.Annotations = nil, nil
	if by := decision.Spec.Approver; by != nil {
		decision.Spec.Approver = &v1alpha1.Requester{Username: by.Username, UID: by.UID}
	}
}

func slimPod(pod *corev1.Pod) {
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
}

// Fields that the cache is indexed by.
const (
	// IndexDefault has "true" for environments and policies that are marked as a default.
	IndexDefault = "default"
	// IndexPodOwner has the UID of the Job that a pod belongs to.
	IndexPodOwner = "pod.owner"
	// IndexActive has the environment of a call that holds one of its places and has not ended.
	IndexActive = "call.active"
	// IndexCallJob has the name of the Job that is recorded in a call that has not ended.
	IndexCallJob = "call.job"
	// IndexPool has the name of the environment whose warm pool a Job belongs to.
	IndexPool = "job.pool"
	// IndexJobCall has the UID of the call that owns a Job.
	IndexJobCall = "job.call"
	// IndexCallSession has the name of the session of a call that has not ended.
	IndexCallSession = "call.session"
	// IndexApprovalCall has the name of the call that a ToolCallApproval is about.
	IndexApprovalCall = "approval.call"
	// IndexSessionJob has the name of the Job that is recorded in a session that has not ended.
	IndexSessionJob = "session.job"
	// IndexSessionEnvironment has the environment of a session that has not ended.
	IndexSessionEnvironment = "session.environment"
)

// Setup has the cache find objects by the fields that the controllers ask for, and fill with every kind that they read
// before they begin: one that nobody watches would be filled while the first call waits for it.
func Setup(objects cache.Cache) error {
	ctx := context.Background()
	for _, index := range []struct {
		object client.Object
		field  string
		value  client.IndexerFunc
	}{
		{&v1alpha1.ExecutionEnvironment{}, IndexDefault, defaultValue(v1alpha1.AnnotationDefaultEnvironment)},
		{&v1alpha1.ExecutionPolicy{}, IndexDefault, defaultValue(v1alpha1.AnnotationDefaultPolicy)},
		{&corev1.Pod{}, IndexPodOwner, podOwner},
		{&v1alpha1.ToolCall{}, IndexActive, activeEnvironment},
		{&v1alpha1.ToolCall{}, IndexCallJob, jobOfCall},
		{&batchv1.Job{}, IndexPool, poolOf},
		{&batchv1.Job{}, IndexJobCall, ownerCall},
		{&v1alpha1.ToolCall{}, IndexCallSession, sessionOfCall},
		{&v1alpha1.ToolCallApproval{}, IndexApprovalCall, callOfApproval},
		{&v1alpha1.ToolSession{}, IndexSessionJob, jobOfSession},
		{&v1alpha1.ToolSession{}, IndexSessionEnvironment, environmentOfSession},
	} {
		if err := objects.IndexField(ctx, index.object, index.field, index.value); err != nil {
			return fmt.Errorf("%T by %s: %w", index.object, index.field, err)
		}
	}
	for _, read := range []client.Object{
		&v1alpha1.Skill{}, &v1alpha1.ToolCallApproval{}, &v1alpha1.ToolBudget{}, &networkingv1.NetworkPolicy{},
		&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{},
	} {
		if _, err := objects.GetInformer(ctx, read, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("%T: %w", read, err)
		}
	}
	return nil
}

func defaultValue(annotation string) client.IndexerFunc {
	return indexBy(func(o client.Object) string {
		if o.GetAnnotations()[annotation] == "true" {
			return "true"
		}
		return ""
	})
}

// indexBy adapts a function of one type; what it says empty about isn't in the index.
func indexBy[T client.Object](value func(T) string) client.IndexerFunc {
	return func(o client.Object) []string {
		if object, ok := o.(T); ok {
			if text := value(object); text != "" {
				return []string{text}
			}
		}
		return nil
	}
}

// ofCall is indexBy for calls that have not ended.
func ofCall(value func(*v1alpha1.ToolCall) string) client.IndexerFunc {
	return indexBy(func(call *v1alpha1.ToolCall) string {
		if call.Status.Phase.Terminal() {
			return ""
		}
		return value(call)
	})
}

// ownedBy is the UID of the owner of an object, if that is of this kind.
func ownedBy(kind string) client.IndexerFunc {
	return indexBy(func(o client.Object) string {
		if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == kind {
			return string(owner.UID)
		}
		return ""
	})
}

// resolvedName is the name of an environment that may not be known.
func resolvedName(environment *v1alpha1.ResolvedEnvironment) string {
	if environment == nil {
		return ""
	}
	return environment.Name
}

var (
	// podOwner is the UID of the Job that made a pod, and ownerCall that of the call that has a Job.
	podOwner, ownerCall = ownedBy("Job"), ownedBy("ToolCall")

	// activeEnvironment is the environment of a call that has a Job and has not ended.
	activeEnvironment = ofCall(func(call *v1alpha1.ToolCall) string {
		if call.Status.Job == "" {
			return ""
		}
		return resolvedName(call.Status.Environment)
	})
	// jobOfCall is the Job that is recorded in a call that has not ended.
	jobOfCall = ofCall(func(call *v1alpha1.ToolCall) string { return call.Status.Job })
	// callOfApproval is the call that a decision is about.
	callOfApproval = indexBy(func(a *v1alpha1.ToolCallApproval) string { return a.Spec.CallRef.Name })

	// poolOf is the name of the environment whose warm pool a Job says that it belongs to; none once a call owns it.
	poolOf = indexBy(jobspec.PoolOf)
)

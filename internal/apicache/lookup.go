package apicache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/jobspec"
)

// Lag is how long the cache may take to show something that is known to be there.
const Lag = 50 * time.Millisecond

// Reader looks objects up in the cache, and past it where that may be behind.
type Reader struct {
	client.Reader
	// Live reads from the API server.
	Live client.Reader
}

// Find gets an object that somebody named: often it was created a moment before, so that the API server is asked when
// the cache doesn't have it. found is false when there is none.
func (r Reader) Find(ctx context.Context, key types.NamespacedName, into client.Object) (found bool, err error) {
	found, err = get(ctx, r.Reader, key, into)
	if err == nil && !found {
		found, err = get(ctx, r.Live, key, into)
	}
	return found, err
}

// FindLive gets an object past the cache; found is false when there is none.
func (r Reader) FindLive(ctx context.Context, key types.NamespacedName, into client.Object) (found bool, err error) {
	return get(ctx, r.Live, key, into)
}

// get gets an object; found is false when there is none. Nothing has a name that can't stand in a URL: a client sends no request
// for one, and its error would be the same each time.
func get(ctx context.Context, from client.Reader, key types.NamespacedName, into client.Object) (found bool, err error) {
	if key.Name == "" || len(content.IsPathSegmentName(key.Name)) > 0 {
		return false, nil
	}
	err = from.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get %T %s: %w", into, key.Name, err)
	}
	return true, nil
}

// DefaultEnvironments are the environments that a namespace marks as its default. needed says that a call can't run
// without one: then the API server is asked when the cache has none.
func (r Reader) DefaultEnvironments(ctx context.Context, namespace string, needed bool) ([]v1alpha1.ExecutionEnvironment, error) {
	list := &v1alpha1.ExecutionEnvironmentList{}
	if err := r.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{IndexDefault: "true"}); err != nil {
		return nil, fmt.Errorf("list default environments: %w", err)
	}
	if len(list.Items) > 0 || !needed {
		return list.Items, nil
	}
	return r.liveDefaults(ctx, namespace)
}

// maxListed bounds a list that is only looked through.
const maxListed = 500

// liveDefaults looks for default environments past the cache. The API server has no index of annotations, and the specs
// of a whole namespace can be large. Two are as wrong as more.
func (r Reader) liveDefaults(ctx context.Context, namespace string) ([]v1alpha1.ExecutionEnvironment, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ExecutionEnvironmentList"))
	if err := r.Live.List(ctx, list, client.InNamespace(namespace), client.Limit(maxListed)); err != nil {
		return nil, fmt.Errorf("list environments: %w", err)
	}
	var defaults []v1alpha1.ExecutionEnvironment
	for i := range list.Items {
		if list.Items[i].Annotations[v1alpha1.AnnotationDefaultEnvironment] != "true" || len(defaults) == 2 {
			continue
		}
		env := v1alpha1.ExecutionEnvironment{}
		found, err := get(ctx, r.Live, client.ObjectKeyFromObject(&list.Items[i]), &env)
		if err != nil {
			return nil, err
		}
		if found {
			defaults = append(defaults, env)
		}
	}
	return defaults, nil
}

// Policies are those that may apply to an environment.
func (r Reader) Policies(ctx context.Context, env *v1alpha1.ExecutionEnvironment) (decide.Policies, error) {
	if name := env.Spec.PolicyName(); name != "" {
		policy := &v1alpha1.ExecutionPolicy{}
		found, err := r.Find(ctx, types.NamespacedName{Name: name}, policy)
		if err != nil || !found {
			return decide.Policies{}, err
		}
		return decide.Policies{Named: policy}, nil
	}
	defaults := &v1alpha1.ExecutionPolicyList{}
	if err := r.List(ctx, defaults, client.MatchingFields{IndexDefault: "true"}); err != nil {
		return decide.Policies{}, fmt.Errorf("list default policies: %w", err)
	}
	return decide.Policies{Defaults: defaults.Items}, nil
}

// Job gets a Job, nil when there is none. Of one that has ended, or has a large decision, the cache has not all, so that
// it is read anew.
func (r Reader) Job(ctx context.Context, key types.NamespacedName) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	found, err := get(ctx, r.Reader, key, job)
	if err != nil || !found {
		return nil, err
	}
	if jobspec.HasEnded(job) || jobspec.IsDecisionOmitted(job) {
		return r.LiveJob(ctx, key)
	}
	return job, nil
}

// LiveJob gets a Job past the cache, nil when there is none.
func (r Reader) LiveJob(ctx context.Context, key types.NamespacedName) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	found, err := get(ctx, r.Live, key, job)
	if err != nil || !found {
		return nil, err
	}
	jobspec.Slim(job)
	return job, nil
}

// PodOf finds a Job's newest pod in the cache, nil when there is none.
func (r Reader) PodOf(ctx context.Context, job *batchv1.Job) (*corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := r.listBy(ctx, pods, job.Namespace, IndexPodOwner, string(job.UID)); err != nil {
		return nil, err
	}
	if len(pods.Items) == 0 {
		return nil, nil
	}
	newest := slices.MaxFunc(pods.Items, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return &newest, nil
}

// PodByUID gets a pod of that name and UID, past the cache before it is believed to be gone; nil when it is.
func (r Reader) PodByUID(ctx context.Context, key types.NamespacedName, uid string) (*corev1.Pod, error) {
	for _, reader := range []client.Reader{r.Reader, r.Live} {
		pod := &corev1.Pod{}
		found, err := get(ctx, reader, key, pod)
		if err != nil {
			return nil, err
		}
		if found && string(pod.UID) == uid {
			return pod, nil
		}
	}
	return nil, nil
}

// LiveCall gets a call past the cache, nil when there is none.
func (r Reader) LiveCall(ctx context.Context, key types.NamespacedName) (*v1alpha1.ToolCall, error) {
	call := &v1alpha1.ToolCall{}
	found, err := get(ctx, r.Live, key, call)
	if err != nil || !found {
		return nil, err
	}
	unmark(call)
	return call, nil
}

// SealedDecision is what was decided about a call that has its runner, sealed. The cache leaves large ones out.
func (r Reader) SealedDecision(ctx context.Context, call *v1alpha1.ToolCall) (string, error) {
	whole := &v1alpha1.ToolCall{}
	return r.sealed(ctx, call, whole, call.Status.Runner, &whole.Status.Runner)
}

// sealed is what is sealed in an object's binding, which is read past the cache if that left it out.
func (r Reader) sealed(ctx context.Context, seen, whole client.Object, bound *v1alpha1.RunnerBinding, now **v1alpha1.RunnerBinding) (string, error) {
	if bound.Decision != omittedDecision {
		return bound.Decision, nil
	}
	if err := r.readWhole(ctx, seen, whole); err != nil {
		return "", err
	}
	if *now == nil || (*now).KeyHash != bound.KeyHash {
		return "", errChanged
	}
	return (*now).Decision, nil
}

// CallsOfJob are the calls in flight that record a Job as theirs.
func (r Reader) CallsOfJob(ctx context.Context, job types.NamespacedName) ([]v1alpha1.ToolCall, error) {
	calls := &v1alpha1.ToolCallList{}
	err := r.listBy(ctx, calls, job.Namespace, IndexCallJob, job.Name)
	return calls.Items, err
}

// listBy lists the objects of a namespace that have a value in an index.
func (r Reader) listBy(ctx context.Context, list client.ObjectList, namespace, index, value string, options ...client.ListOption) error {
	options = append(options, client.InNamespace(namespace), client.MatchingFields{index: value})
	if err := r.List(ctx, list, options...); err != nil {
		return fmt.Errorf("list %T by %s %s: %w", list, index, value, err)
	}
	return nil
}

// CallsInFlight are the calls of a namespace, or of all, that have not ended, and that is says true of. They are not to be changed.
func (r Reader) CallsInFlight(ctx context.Context, namespace string, is func(*v1alpha1.ToolCall) bool, options ...client.ListOption) ([]*v1alpha1.ToolCall, error) {
	calls := &v1alpha1.ToolCallList{}
	if err := r.List(ctx, calls, append(options, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("list the calls that have not ended: %w", err)
	}
	var all []*v1alpha1.ToolCall
	for i := range calls.Items {
		if call := &calls.Items[i]; !call.Status.Phase.Terminal() && is(call) {
			all = append(all, call)
		}
	}
	return all, nil
}

// All is true of every call.
func All(*v1alpha1.ToolCall) bool { return true }

// CountCalls counts the calls in flight that is says true of, by environment; none while the cache isn't filled. A call that isn't decided
// about yet counts for the environment that it names.
func CountCalls(reader client.Reader, is func(*v1alpha1.ToolCall) bool) map[types.NamespacedName]int {
	counts := map[types.NamespacedName]int{}
	calls, err := Reader{Reader: reader}.CallsInFlight(context.Background(), "", is, client.DisableReadYourWritesConsistency)
	if err != nil {
		return counts
	}
	for _, call := range calls {
		counts[environmentOf(call.Namespace, call.Status.Environment, call.Spec.EnvironmentRef)]++
	}
	return counts
}

// environmentOf is the environment that was resolved, or else the one that is named; without a name when there is neither.
func environmentOf(namespace string, resolved *v1alpha1.ResolvedEnvironment, named *v1alpha1.LocalReference) types.NamespacedName {
	key := types.NamespacedName{Namespace: namespace}
	switch {
	case resolved != nil && resolved.Name != "":
		key.Name = resolved.Name
	case named != nil:
		key.Name = named.Name
	}
	return key
}

// errChanged says that the cache is behind: the pass is tried again.
var errChanged = errors.New("the object was changed or replaced since it was seen")

// readWhole reads an object past the cache, which leaves parts of it out.
func (r Reader) readWhole(ctx context.Context, seen, whole client.Object) error {
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(seen), whole); err != nil {
		return fmt.Errorf("read the whole %T: %w", seen, err)
	}
	if whole.GetUID() != seen.GetUID() {
		return errChanged
	}
	return nil
}

// Whole gives the call with its input, which the cache leaves out of large ones.
func (r Reader) Whole(ctx context.Context, call *v1alpha1.ToolCall) (*v1alpha1.ToolCall, error) {
	if isWhole(call) {
		return call, nil
	}
	whole := &v1alpha1.ToolCall{}
	if err := r.readWhole(ctx, call, whole); err != nil {
		return nil, err
	}
	if whole.Generation != call.Generation {
		return nil, errChanged
	}
	unmark(whole)
	return whole, nil
}

// Revision is a resource version as a number, which grows with each write to the API server; 0 when it isn't one.
func Revision(resourceVersion string) int64 {
	n, _ := strconv.ParseInt(resourceVersion, 10, 64)
	return n
}

// Decisions are those about a call that are in the cache, also about others of its name. What the operator itself wrote of them isn't
// waited for: it doesn't change whether they count.
func (r Reader) Decisions(ctx context.Context, call types.NamespacedName) ([]v1alpha1.ToolCallApproval, error) {
	list := &v1alpha1.ToolCallApprovalList{}
	if err := r.List(ctx, list, client.InNamespace(call.Namespace), client.MatchingFields{IndexApprovalCall: call.Name}, client.DisableReadYourWritesConsistency); err != nil {
		return nil, fmt.Errorf("list the decisions about the call: %w", err)
	}
	return list.Items, nil
}

// fieldApprovalCall is the field that the API server selects the decisions about a call by.
const fieldApprovalCall = "spec.callRef.name"

// LiveDecisions are those about a call past the cache, also about others of its name.
func (r Reader) LiveDecisions(ctx context.Context, call types.NamespacedName) ([]v1alpha1.ToolCallApproval, error) {
	list := &v1alpha1.ToolCallApprovalList{}
	if err := r.Live.List(ctx, list, client.InNamespace(call.Namespace), client.MatchingFields{fieldApprovalCall: call.Name}); err != nil {
		return nil, fmt.Errorf("list the decisions about the call past the cache: %w", err)
	}
	return list.Items, nil
}

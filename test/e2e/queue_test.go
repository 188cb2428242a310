package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/full"
)

// The tests of this file play a queue such as Kueue's, whose part is this: an admission that suspends each new Job
// with the queue's label, and a patch of spec.suspend when it is the Job's turn.

// newQueue has the API server suspend the new Jobs of the test's namespace that are labelled.
func (sp *space) newQueue(t *testing.T) {
	t.Helper()
	if !sp.fillsRequester {
		t.Skip("the queue of this test is a MutatingAdmissionPolicy, which the cluster doesn't have")
	}
	name := "queue-" + sp.namespace
	suspend := fmt.Sprintf(`[JSONPatch{op: "add", path: "/spec/suspend", value: true}].filter(p, request.namespace == %q)`, sp.namespace)
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			FailurePolicy:      ptr.To(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
					Key: jobspec.LabelQueue, Operator: metav1.LabelSelectorOpExists,
				}}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{"batch"}, APIVersions: []string{"v1"}, Resources: []string{"jobs"}},
				}}},
			},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: suspend},
			}},
		},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}
	for _, o := range []client.Object{policy, binding} {
		must(t, sp.client.Create(t.Context(), o))
		sp.discard(t, o)
	}
	sp.awaitTrue(t, "queue in force", func(ctx context.Context) (bool, error) {
		job := probeJob(sp.namespace)
		err := sp.client.Create(ctx, job, client.DryRunAll)
		return err == nil && ptr.Deref(job.Spec.Suspend, false), err
	})
}

func probeJob(namespace string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe", Labels: map[string]string{jobspec.LabelQueue: "q"}},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: toolImage}},
		}}},
	}
}

// newQueuedEnvironment makes one whose calls wait in the queue. So do the pods of its pool, where it has one.
func (sp *space) newQueuedEnvironment(t *testing.T, adjust ...func(*v1alpha1.ExecutionEnvironment)) {
	t.Helper()
	sp.newEnvironment(t, "queued", append(adjust, func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Queues = []string{"agents"}
	})...)
}

func (sp *space) suspendJob(t *testing.T, name string, suspend bool) {
	t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: name}}
	patch := fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, suspend)
	must(t, sp.client.Patch(t.Context(), job, client.RawPatch("application/merge-patch+json", patch)))
}

// awaitSuspended waits until the call says that it waits in the queue.
func (sp *space) awaitSuspended(t *testing.T, call *v1alpha1.ToolCall) *v1alpha1.ToolCall {
	t.Helper()
	return sp.awaitCall(t, call, "wait in the queue", func(c *v1alpha1.ToolCall) bool {
		started := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionStarted)
		return started != nil && started.Reason == v1alpha1.ReasonSuspended
	})
}

// The wait in a queue counts for nothing: not for the time to start, and not for the command's own.
func TestQueuedCallStartsWhenItIsLet(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	sp.newQueue(t)
	sp.newQueuedEnvironment(t, func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.StartTimeoutSeconds = ptr.To(int32(20))
	})
	call := sp.newCall(in("queued", within(5, shell("echo ran"))))
	must(t, sp.client.Create(t.Context(), call))
	sp.reportOnFailure(t, call)
	waiting := sp.awaitSuspended(t, call)
	if waiting.Status.Phase != v1alpha1.PhasePending || waiting.Status.Job == "" {
		t.Fatalf("it waits as %+v", waiting.Status)
	}
	// Longer than both limits together would let it wait.
	time.Sleep(26 * time.Second)
	still := &v1alpha1.ToolCall{}
	must(t, sp.client.Get(t.Context(), keyOf(call), still))
	if still.ResourceVersion != waiting.ResourceVersion {
		t.Errorf("it was written while it waited: %+v", still.Status)
	}
	if pods := sp.pods(t, waiting); len(pods) != 0 {
		t.Errorf("pod %s was made for it", pods[0].Name)
	}
	sp.suspendJob(t, waiting.Status.Job, false)
	expect(t, sp.awaitFinished(t, call), succeeded("ran\n"))
}

// A call that names one of the queues that its environment offers waits in that one, any other in the first.
func TestCallChoosesItsQueue(t *testing.T) {
	full.Only(t, "TestQueuedCallStartsWhenItIsLet has a queue")
	t.Parallel()
	sp := newSpace(t)
	sp.newQueue(t)
	sp.newEnvironment(t, "offering", func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Queues = []string{"interactive", "batch"}
	})
	create := func(queue string) *v1alpha1.ToolCall {
		call := sp.newCall(in("offering", shell("echo ran")))
		call.Labels = map[string]string{jobspec.LabelQueue: queue}
		must(t, sp.client.Create(t.Context(), call))
		return call
	}
	for call, want := range map[*v1alpha1.ToolCall]string{create("batch"): "batch", create("vip"): "interactive"} {
		waiting := sp.awaitSuspended(t, call)
		job := &batchv1.Job{}
		must(t, sp.client.Get(t.Context(), client.ObjectKey{Namespace: sp.namespace, Name: waiting.Status.Job}, job))
		if queue := job.Labels[jobspec.LabelQueue]; queue != want {
			t.Errorf("it waits in queue %q; want %q", queue, want)
		}
		sp.suspendJob(t, waiting.Status.Job, false)
		expect(t, sp.awaitFinished(t, call), succeeded("ran\n"))
	}
}

// A queue takes the place of a running Job for a more important one: the Job controller removes the pod, and starts
// another one when the Job may run again. The command isn't run a second time.
func TestQueueThatTakesARunningCallsPlace(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	sp.newQueue(t)
	sp.newQueuedEnvironment(t)
	counting := sp.countPods(t)
	call := sp.newCall(in("queued", shell("echo once; sleep 60")))
	must(t, sp.client.Create(t.Context(), call))
	sp.reportOnFailure(t, call)
	job := sp.awaitSuspended(t, call).Status.Job
	sp.suspendJob(t, job, false)
	sp.awaitLine(t, call, "once")
	sp.suspendJob(t, job, true)
	done := sp.awaitFinished(t, call)
	if done.Status.Phase != v1alpha1.PhaseFailed || ptr.Deref(done.Status.RetrySafe, true) {
		t.Errorf("it ended %s, %s: %s", done.Status.Phase, done.Status.Reason, done.Status.Message)
	}
	// When there is room again, nothing of it is started.
	sp.awaitNoJob(t, done)
	if pods := counting.perJob()[job]; pods != 1 {
		t.Errorf("%d pods were made for it", pods)
	}
}

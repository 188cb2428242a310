package namespaces

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/config/rbac"
)

func TestTheOperatorWorksInItsNamespacesAndNowhereElse(t *testing.T) {
	b := newBench(t)
	b.hasItsRightsOnlyWhereItWorks()

	// One namespace's rights come late: the operator says which it lacks, and goes on when they are there.
	last := covered[len(covered)-1]
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: last, Name: rbac.NamespacedRole}}
	b.must(b.admin.Delete(t.Context(), binding))
	b.awaitRight(last, false)
	r := b.start()
	b.eventually("the operator to say which rights it lacks", func(context.Context) (bool, error) {
		return strings.Contains(r.logs(), "in namespace "+last+": "), nil
	})
	for _, right := range []string{"create secrets", "delete jobs.batch", "patch toolcalls/status.toolcall.dev"} {
		if !strings.Contains(r.logs(), right) {
			t.Errorf("the operator doesn't say that it may not %s:\n%s", right, r.logs())
		}
	}
	if strings.Contains(r.logs(), "in namespace "+covered[0]) || strings.Contains(r.logs(), "in the whole cluster") {
		t.Errorf("the operator says that it lacks what it has:\n%s", r.logs())
	}
	b.kubectl("apply", "--server-side", "-k", b.overlay)

	b.must(b.admin.Create(t.Context(), &v1alpha1.ExecutionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "open"},
		Spec:       v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}},
	}))
	env, call := b.environment(elsewhere, "tools"), newCall(elsewhere)
	// The admission policy that sets the requester reads the schema of the kind, which it gets a moment after the kind.
	b.eventually("calls to be admitted", func(ctx context.Context) (bool, error) {
		err := b.admin.Create(ctx, call)
		if err != nil && strings.Contains(err.Error(), "There can be a delay") {
			return false, nil
		}
		return err == nil, err
	})
	for _, namespace := range covered {
		b.worksIn(namespace)
	}
	b.isUntouched(env, call)
	b.eventually("the aggregated API to be registered", func(context.Context) (bool, error) {
		return strings.Contains(r.logs(), "Registered the aggregated API"), nil
	})
	b.askedOnlyForItsOwn(r)
}

// hasItsRightsOnlyWhereItWorks asks the API server for each right of the generated role.
func (b *bench) hasItsRightsOnlyWhereItWorks() {
	b.t.Helper()
	var rules []rbacv1.PolicyRule
	for document := range strings.SplitSeq(string(rbac.Roles), "\n---\n") {
		role := &rbacv1.ClusterRole{}
		b.must(yaml.Unmarshal([]byte(document), role))
		if role.Name == rbac.NamespacedRole {
			rules = role.Rules
		}
	}
	if len(rules) == 0 {
		b.t.Fatalf("there is no role %s", rbac.NamespacedRole)
	}
	for _, namespace := range covered {
		b.awaitRight(namespace, true)
	}
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for namespace, want := range map[string]bool{covered[0]: true, covered[1]: true, elsewhere: false, metav1.NamespaceAll: false} {
					if got := b.may(namespace, verb, rule.APIGroups[0], resource); got != want {
						b.t.Errorf("may the operator %s %s.%s in namespace %q: %t", verb, resource, rule.APIGroups[0], namespace, got)
					}
				}
			}
		}
	}
	if b.may(covered[0], "get", "", "secrets") {
		b.t.Error("the operator may get secrets")
	}
}

func (b *bench) may(namespace, verb, group, resource string) bool {
	b.t.Helper()
	resource, subresource, _ := strings.Cut(resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource},
	}}
	b.must(b.operator.Create(b.t.Context(), review))
	return review.Status.Allowed
}

// awaitRight waits until the authorizer knows that a namespace's rights are there, or gone.
func (b *bench) awaitRight(namespace string, want bool) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("rights in namespace %s: %t", namespace, want), func(context.Context) (bool, error) {
		return b.may(namespace, "delete", "batch", "jobs") == want, nil
	})
}

func (b *bench) environment(namespace, name string) *v1alpha1.ExecutionEnvironment {
	b.t.Helper()
	env := &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ExecutionEnvironmentSpec{
			Image: "example.com/tools:1", PolicyRef: &v1alpha1.PolicyReference{Name: "open"}, WarmPool: &v1alpha1.WarmPool{Size: 1},
		},
	}
	b.must(b.admin.Create(b.t.Context(), env))
	return env
}

func newCall(namespace string) *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "call-"},
		Spec: v1alpha1.ToolCallSpec{
			Shell: &v1alpha1.ShellAction{Command: "true"}, EnvironmentRef: &v1alpha1.LocalReference{Name: "tools"},
			TTLSecondsAfterFinished: ptr.To[int32](1),
		},
	}
}

// worksIn has the operator do in a namespace all that it does without a node: pods, NetworkPolicies, statuses and Events
// for environments and calls, until a call is cancelled and deleted.
func (b *bench) worksIn(namespace string) {
	b.t.Helper()
	ctx, in := b.t.Context(), client.InNamespace(namespace)
	env := b.environment(namespace, "tools")
	b.environment(namespace, "more")
	b.eventually("environment in "+namespace, func(ctx context.Context) (bool, error) {
		err := b.admin.Get(ctx, client.ObjectKeyFromObject(env), env)
		return meta.FindStatusCondition(env.Status.Conditions, v1alpha1.ConditionReady) != nil, err
	})
	b.eventually("NetworkPolicies in "+namespace+" of both environments", func(ctx context.Context) (bool, error) {
		list := &networkingv1.NetworkPolicyList{}
		err := b.admin.List(ctx, list, in)
		return len(list.Items) == 2 && len(list.Items[0].OwnerReferences) == 2, err
	})
	b.eventually("pods that wait in "+namespace+", and their tokens", func(ctx context.Context) (bool, error) {
		jobs, secrets := b.made(ctx, namespace)
		return jobs == 2 && secrets == 2, nil
	})
	call := b.started(namespace)
	b.runnerComes(call)
	name := call.Name
	b.must(b.admin.Patch(ctx, call, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"cancel":true}}`))))
	b.eventually("call in "+namespace+" to be deleted", func(ctx context.Context) (bool, error) {
		err := b.admin.Get(ctx, client.ObjectKeyFromObject(call), call)
		return err != nil, client.IgnoreNotFound(err)
	})
	b.eventually("Events in "+namespace, func(ctx context.Context) (bool, error) {
		list := &corev1.EventList{}
		err := b.admin.List(ctx, list, in)
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return e.InvolvedObject.Name == name }), err
	})
}

// runnerComes checks that the Job of a call has its runner in one of the two ways. An API server without image volumes drops one
// silently.
func (b *bench) runnerComes(call *v1alpha1.ToolCall) {
	b.t.Helper()
	job := &batchv1.Job{}
	b.must(b.admin.Get(b.t.Context(), client.ObjectKey{Namespace: call.Namespace, Name: call.Status.Job}, job))
	pod := &job.Spec.Template.Spec
	isImage := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Image != nil })
	if isImage == (len(pod.InitContainers) == 1) {
		b.t.Errorf("the pod has the volumes %+v and the init containers %+v", pod.Volumes, pod.InitContainers)
	}
}

// started is a call with a Job. The operator denies calls that are as old as the admission policies.
func (b *bench) started(namespace string) *v1alpha1.ToolCall {
	b.t.Helper()
	call := newCall(namespace)
	b.eventually("call in "+namespace+" to have a Job", func(ctx context.Context) (bool, error) {
		if call.Name == "" {
			return false, b.admin.Create(ctx, call)
		}
		err := b.admin.Get(ctx, client.ObjectKeyFromObject(call), call)
		if err != nil || call.Status.Phase.Terminal() {
			call = newCall(namespace)
			return false, client.IgnoreNotFound(err)
		}
		return call.Status.Job != "", nil
	})
	return call
}

// made counts the operator's Jobs and Secrets.
func (b *bench) made(ctx context.Context, namespace string) (jobs, secrets int) {
	b.t.Helper()
	own := []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}}
	jobList, secretList := &batchv1.JobList{}, &corev1.SecretList{}
	b.must(b.admin.List(ctx, jobList, own...))
	b.must(b.admin.List(ctx, secretList, own...))
	return len(jobList.Items), len(secretList.Items)
}

// isUntouched looks at what was there before all of the work elsewhere.
func (b *bench) isUntouched(env *v1alpha1.ExecutionEnvironment, call *v1alpha1.ToolCall) {
	b.t.Helper()
	ctx := b.t.Context()
	for _, o := range []client.Object{env, call} {
		before := o.GetResourceVersion()
		b.must(b.admin.Get(ctx, client.ObjectKeyFromObject(o), o))
		if o.GetResourceVersion() != before {
			b.t.Errorf("%T %s/%s was written", o, o.GetNamespace(), o.GetName())
		}
	}
	policies := &networkingv1.NetworkPolicyList{}
	b.must(b.admin.List(ctx, policies, client.InNamespace(env.Namespace)))
	if jobs, secrets := b.made(ctx, env.Namespace); jobs+secrets+len(policies.Items) > 0 {
		b.t.Errorf("namespace %s has %d Jobs, %d Secrets and %d NetworkPolicies", env.Namespace, jobs, secrets, len(policies.Items))
	}
}

// askedOnlyForItsOwn finds no request that was refused, for another namespace, or for all namespaces at once.
func (b *bench) askedOnlyForItsOwn(r *running) {
	b.t.Helper()
	r.traffic.mu.Lock()
	defer r.traffic.mu.Unlock()
	for _, request := range r.traffic.refused {
		b.t.Errorf("refused: %s", request)
	}
	own := append(slices.Clone(covered), system)
	for request := range r.traffic.asked {
		switch request {
		case "GET /api/v1/namespaces/kube-system/configmaps": // By name: how the API server authenticates itself.
			continue
		case "GET /apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes": // The API server's own addresses.
			continue
		}
		if _, rest, found := strings.Cut(request, "/namespaces/"); found {
			namespace, _, _ := strings.Cut(rest, "/")
			if !slices.Contains(own, namespace) {
				b.t.Errorf("for another namespace: %s", request)
			}
			continue
		}
		for _, kind := range []string{"toolcalls", "executionenvironments", "skills", "jobs", "pods", "secrets", "events", "networkpolicies"} {
			if strings.HasSuffix(request, "/"+kind) {
				b.t.Errorf("for all namespaces at once: %s", request)
			}
		}
	}
}

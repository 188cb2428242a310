package e2e

import (
	"context"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// defaultEnv is the name of the default environment of every test's namespace.
const defaultEnv = "tools"

// space is a test's own namespace, held to the restricted Pod Security Standard, with a policy of its own and
// a default environment under that.
type space struct {
	*suite
	namespace string
	policy    string
	// way is how the calls come to their pods.
	way way
}

// newSpace makes one whose calls go cold, for a test that runs in no other way.
func newSpace(t *testing.T, adjust ...func(*v1alpha1.ExecutionPolicySpec)) *space {
	t.Helper()
	return wayCold.newSpace(t, adjust...)
}

// newBareSpace makes one without an environment.
func newBareSpace(t *testing.T, adjust ...func(*v1alpha1.ExecutionPolicySpec)) *space {
	t.Helper()
	return wayCold.newBareSpace(t, adjust...)
}

// newSpace makes one and takes it away at the end of the test. The policy allows shell calls; adjust changes it.
func (w way) newSpace(t *testing.T, adjust ...func(*v1alpha1.ExecutionPolicySpec)) *space {
	t.Helper()
	sp := w.newBareSpace(t, adjust...)
	sp.newEnvironment(t, defaultEnv, isDefault)
	return sp
}

func isDefault(e *v1alpha1.ExecutionEnvironment) {
	e.Annotations = map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"}
}

func (w way) newBareSpace(t *testing.T, adjust ...func(*v1alpha1.ExecutionPolicySpec)) *space {
	t.Helper()
	s := cluster(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-" + s.id + "-",
		Labels:       map[string]string{labelRun: s.id, "pod-security.kubernetes.io/enforce": "restricted"},
	}}
	must(t, s.client.Create(t.Context(), namespace))
	s.discard(t, namespace)
	sp := &space{suite: s, namespace: namespace.Name, policy: namespace.Name, way: w}
	sp.newPolicy(t, sp.policy, adjust...)
	// Pods are refused until the namespace has its account.
	s.await(t, "default ServiceAccount", &corev1.ServiceAccountList{}, func(o client.Object, gone bool) bool {
		return !gone && o.GetName() == "default"
	}, client.InNamespace(sp.namespace))
	return sp
}

func (sp *space) newPolicy(t *testing.T, name string, adjust ...func(*v1alpha1.ExecutionPolicySpec)) {
	t.Helper()
	policy := &v1alpha1.ExecutionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labelRun: sp.id}},
		Spec:       v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}},
	}
	for _, change := range adjust {
		change(&policy.Spec)
	}
	must(t, sp.client.Create(t.Context(), policy))
	sp.discard(t, policy)
}

// newEnvironment makes an environment with the tool image under the space's policy.
func (sp *space) newEnvironment(t *testing.T, name string, adjust ...func(*v1alpha1.ExecutionEnvironment)) *v1alpha1.ExecutionEnvironment {
	t.Helper()
	env := &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: name},
		Spec: v1alpha1.ExecutionEnvironmentSpec{
			Image: toolImage, ImagePullPolicy: corev1.PullIfNotPresent, PolicyRef: &v1alpha1.PolicyReference{Name: sp.policy},
		},
	}
	if n := slowness(); n > 1 {
		env.Spec.StartTimeoutSeconds = ptr.To(int32(120 * n))
	}
	for _, change := range adjust {
		change(env)
	}
	sp.way.applyTo(&env.Spec)
	must(t, sp.client.Create(t.Context(), env))
	return env
}

// create makes a call. When the test fails, everything that is known of the call is printed.
func (sp *space) create(t *testing.T, spec v1alpha1.ToolCallSpec) *v1alpha1.ToolCall {
	t.Helper()
	sp.awaitPod(t, spec)
	call := sp.newCall(sp.enterSession(t, spec))
	must(t, sp.client.Create(t.Context(), call))
	sp.reportOnFailure(t, call)
	return call
}

func (sp *space) newCall(spec v1alpha1.ToolCallSpec) *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, GenerateName: "call-"}, Spec: spec}
}

// run creates a call and waits for its end.
func (sp *space) run(t *testing.T, spec v1alpha1.ToolCallSpec) *v1alpha1.ToolCall {
	t.Helper()
	return sp.awaitFinished(t, sp.create(t, spec))
}

// update changes a call as a client would, and gives the API server's answer.
func (sp *space) update(t *testing.T, call *v1alpha1.ToolCall, change func(*v1alpha1.ToolCallSpec)) error {
	t.Helper()
	patch := call.DeepCopy()
	change(&patch.Spec)
	return sp.client.Patch(t.Context(), patch, client.MergeFrom(call))
}

func (sp *space) cancel(t *testing.T, call *v1alpha1.ToolCall) {
	t.Helper()
	must(t, sp.update(t, call, func(spec *v1alpha1.ToolCallSpec) { spec.Cancel = true }))
}

// jobs are the Jobs that were made for a call.
func (sp *space) jobs(t *testing.T, call *v1alpha1.ToolCall) []batchv1.Job {
	t.Helper()
	list := &batchv1.JobList{}
	must(t, sp.client.List(t.Context(), list, client.InNamespace(sp.namespace), client.MatchingLabels{v1alpha1.LabelCall: string(call.UID)}))
	return list.Items
}

// pods are those of a call's Jobs. One that waited before has no label of the call.
func (sp *space) pods(t *testing.T, call *v1alpha1.ToolCall) []corev1.Pod {
	t.Helper()
	var own []corev1.Pod
	list := &corev1.PodList{}
	must(t, sp.client.List(t.Context(), list, client.InNamespace(sp.namespace)))
	jobs := map[string]bool{call.Status.Job: call.Status.Job != ""}
	for _, job := range sp.jobs(t, call) {
		jobs[job.Name] = true
	}
	for _, pod := range list.Items {
		if pod.Labels[v1alpha1.LabelCall] == string(call.UID) || jobs[pod.Labels[batchv1.JobNameLabel]] {
			own = append(own, pod)
		}
	}
	return own
}

// awaitNoJob waits until no Job and no pod of the call is left.
func (sp *space) awaitNoJob(t *testing.T, call *v1alpha1.ToolCall) {
	t.Helper()
	sp.awaitTrue(t, "end of the Job and pod of "+call.Name, func(context.Context) (bool, error) {
		return len(sp.jobs(t, call)) == 0 && len(sp.pods(t, call)) == 0, nil
	})
}

// allow binds subjects to the right to use tools, and to the role that lets them create calls.
func (sp *space) allow(t *testing.T, role string, subject rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	must(t, sp.client.Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: role}, Rules: rules,
	}))
	sp.bind(t, role, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role}, subject)
}

// letCreate lets the subject create calls, with the ClusterRole that ships for that.
func (sp *space) letCreate(t *testing.T, subject rbacv1.Subject) {
	t.Helper()
	name := "creates-" + strings.NewReplacer(":", "-", "/", "-").Replace(subject.Name)
	sp.bind(t, name, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "toolcall-user"}, subject)
}

func (sp *space) bind(t *testing.T, name string, role rbacv1.RoleRef, subject rbacv1.Subject) {
	t.Helper()
	must(t, sp.client.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: name}, RoleRef: role, Subjects: []rbacv1.Subject{subject},
	}))
}

func use(tools ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"tools"}, ResourceNames: tools, Verbs: []string{"use"},
	}
}

// The kinds of calls, short.

func structured(binary string, args ...string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: binary, Args: args}}
}

func shell(command string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: command}}
}

func code(language, source string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: language, Source: source}}
}

// in names the environment of a call.
func in(environment string, spec v1alpha1.ToolCallSpec) v1alpha1.ToolCallSpec {
	spec.EnvironmentRef = &v1alpha1.LocalReference{Name: environment}
	return spec
}

func within(seconds int32, spec v1alpha1.ToolCallSpec) v1alpha1.ToolCallSpec {
	spec.TimeoutSeconds = &seconds
	return spec
}

func tool(name, arguments string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Tool: &v1alpha1.ToolAction{Name: name, Arguments: &runtime.RawExtension{Raw: []byte(arguments)}}}
}

// metacharactersAllowed lets arguments hold what means something to a shell.
func metacharactersAllowed(p *v1alpha1.ExecutionPolicySpec) {
	p.Arguments = &v1alpha1.ArgumentsPolicy{Metacharacters: v1alpha1.MetacharactersAllow}
}

func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }

func secret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// envName makes the name of an object of a test's.
func envName(test string) string {
	letters := func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}
	return "env-" + strings.Trim(strings.Map(letters, strings.ToLower(test)), "-")
}

func (s *suite) retryConflict(t *testing.T, write func() error) {
	t.Helper()
	must(t, retry.RetryOnConflict(retry.DefaultRetry, write))
}

func file(operation v1alpha1.FileOperation, path string, change ...func(*v1alpha1.FileAction)) v1alpha1.ToolCallSpec {
	action := &v1alpha1.FileAction{Operation: operation, Path: path}
	for _, f := range change {
		f(action)
	}
	return v1alpha1.ToolCallSpec{File: action}
}

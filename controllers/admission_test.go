package controllers_test

import (
	"context"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/apiservertest"
)

// manifests reads the objects of files of config/.
func manifests(t *testing.T, files ...string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := apiservertest.Manifests(files...)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// withAdmission installs the admission policies that say who made a call, and waits until they are in force.
func (w *world) withAdmission() {
	w.t.Helper()
	ctx := context.Background()
	// Runs after the deletions below: the next test must not meet half of the policies.
	w.t.Cleanup(w.withoutAdmission)
	for _, o := range manifests(w.t, "admission/requested_by.yaml", "admission/identity.yaml") {
		if err := w.client.Create(ctx, o, client.DisableReadYourWritesConsistency); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = w.client.Delete(ctx, o, client.DisableReadYourWritesConsistency) })
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		probe := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "probe-"}, Spec: v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "x"}}}
		err := w.client.Create(ctx, probe, client.DryRunAll, client.DisableReadYourWritesConsistency)
		if err == nil && probe.Spec.RequestedBy != nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the admission policies are not in force: %v, %+v", err, probe.Spec.RequestedBy)
		}
	}
}

// withoutAdmission waits until no admission policy is in force any more.
func (w *world) withoutAdmission() {
	w.t.Helper()
	eventually(w.t, func() bool {
		probe := lsCall(w.namespace, "probe")
		err := w.client.Create(context.Background(), probe, client.DryRunAll, client.DisableReadYourWritesConsistency)
		return err == nil && probe.Spec.RequestedBy == nil
	})
}

// as is a client that acts as a user.
func (w *world) as(user string, groups ...string) client.Client {
	w.t.Helper()
	conf := rest.CopyConfig(apiServer)
	conf.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	c, err := client.New(conf, client.Options{Scheme: shared.GetScheme()})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// grant gives a subject verbs on a resource of the project in the namespace.
func (w *world) grant(subject rbacv1.Subject, resource string, names []string, verbs ...string) {
	w.t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"toolcall.dev"}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}},
	}
	w.create(role)
	w.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{subject},
	})
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
}

func lsCall(namespace, name string) *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "ls"}},
	}
}

func TestTheRightToUseAToolDecides(t *testing.T) {
	w := newWorld(t)
	w.environment("env", func(e *v1alpha1.ExecutionEnvironment) { asDefault(e); e.Spec.PolicyRef = nil })
	w.withAdmission()
	w.grant(group("system:authenticated"), "toolcalls", nil, "create")
	w.grant(user("named"), "tools", []string{"ls"}, "use")
	w.grant(group("listers"), "tools", []string{"ls"}, "use")
	w.grant(user("other"), "tools", []string{"cat"}, "use")
	// The operator believes stamps only on calls that are younger than the policies.
	time.Sleep(3 * time.Second)
	for who, tc := range map[string]struct {
		groups  []string
		allowed bool
	}{
		"named": {nil, true}, "grouped": {[]string{"listers"}, true}, "other": {nil, false}, "nobody": {nil, false},
	} {
		t.Run(who, func(t *testing.T) {
			call := lsCall(w.namespace, who)
			if err := w.as(who, tc.groups...).Create(context.Background(), call); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() bool { return w.client.Get(context.Background(), client.ObjectKeyFromObject(call), call) == nil })
			w.accept(call)
			s := w.get(call).Status
			if allowed := s.Phase == v1alpha1.PhasePending; allowed != tc.allowed {
				t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
			if !tc.allowed && s.Reason != v1alpha1.ReasonAgentNotAllowed {
				t.Errorf("the reason is %s", s.Reason)
			}
		})
	}
}

package plugin

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// labelUnstamped on a namespace has it be as on a cluster without MutatingAdmissionPolicy: nobody but the client fills in who creates
// a call or a session.
const labelUnstamped = "test.toolcall.dev/unstamped"

// exceptUnstamped has a MutatingAdmissionPolicyBinding leave out the namespaces with the label.
func exceptUnstamped(o *unstructured.Unstructured) error {
	if o.GetKind() != "MutatingAdmissionPolicyBinding" {
		return nil
	}
	without := []any{map[string]any{"key": labelUnstamped, "operator": "DoesNotExist"}}
	return unstructured.SetNestedSlice(o.Object, without, "spec", "matchResources", "namespaceSelector", "matchExpressions")
}

// unstamp labels the namespace, and waits until a call and a session without their creator are refused.
func (f *fixture) unstamp() {
	f.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"`+labelUnstamped+`": ""}}}`))
	if err := f.client.Patch(f.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}, patch); err != nil {
		f.t.Fatal(err)
	}
	f.eventually("a refusal", func() bool {
		call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c"}}
		call.Spec.Shell = &v1alpha1.ShellAction{Command: "x"}
		session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "s"}}
		return !slices.ContainsFunc([]client.Object{call, session}, func(o client.Object) bool {
			err := f.client.Create(f.t.Context(), o, client.DryRunAll)
			return err == nil || !strings.Contains(err.Error(), "spec.requestedBy must be the user of the request")
		})
	})
}

// Where nobody else does, the plugin fills in who creates calls and sessions.
func TestThePluginSaysWhoAsks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.unstamp()
	user := f.user([]string{"toolcall-user"}, "ls")
	f.run("run", "--as", user, "--detach", "--name", "first", "--", "ls").expect(t, 0, "first")
	f.end("first", succeeded())
	f.run("rerun", "--as", user, "first", "--detach", "--name", "second").expect(t, 0, "second")
	f.run("session", "start", "dev", "--as", user, "--detach").expect(t, 0, "dev")
	f.run("check", "--as", user, "--", "ls").expect(t, 125, "Requester: "+user)
	session := &v1alpha1.ToolSession{}
	if err := f.client.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: "dev"}, session); err != nil {
		t.Fatal(err)
	}
	for name, by := range map[string]*v1alpha1.Requester{
		"first": f.call("first").Spec.RequestedBy, "second": f.call("second").Spec.RequestedBy, "dev": session.Spec.RequestedBy,
	} {
		if by == nil || by.Username != user || !slices.Equal(by.Groups, []string{"system:authenticated"}) {
			t.Errorf("%s was created by %+v", name, by)
		}
	}
}

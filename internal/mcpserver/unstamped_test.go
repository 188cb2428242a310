package mcpserver

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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
	must(f.t, f.admin.Patch(f.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}, patch))
	var last error
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c"}, Spec: v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "x"}}}
		session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "s"}}
		refused := func(o client.Object) bool {
			last = f.admin.Create(f.t.Context(), o, client.DryRunAll)
			return last != nil && strings.Contains(last.Error(), "spec.requestedBy must be the user of the request")
		}
		if refused(call) && refused(session) {
			return
		}
	}
	f.t.Fatalf("the admission policies are not in force: %v", last)
}

// Where nobody else does, the server fills in who creates calls and sessions: the user whose token it has.
func TestTheServerSaysWhoAsks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.unstamp()
	s.operate(echo)
	sessions := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolsessions"}, Verbs: []string{"create", "get", "list", "watch", "patch"}}
	agent := s.session(s.user("agent", runsCalls(), sessions), "/mcp", withSessions)
	if answer, ran := use(t, agent, "run_command", fields{"command": "ls"}); answer.IsError || ran.Output != "ls" {
		t.Errorf("%s", textOf(answer))
	}
	_, started := use(t, agent, "start_session", fields{"timeout_seconds": 0})
	list := &v1alpha1.ToolSessionList{}
	must(t, s.admin.List(t.Context(), list, client.InNamespace(s.namespace)))
	if len(list.Items) != 1 || list.Items[0].Name != started.Session {
		t.Fatalf("%d sessions, started %+v", len(list.Items), started)
	}
	call := s.only("finished", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase.Terminal() })
	want := "system:serviceaccount:" + s.namespace + ":agent"
	for what, by := range map[string]*v1alpha1.Requester{"the call": call.Spec.RequestedBy, "the session": list.Items[0].Spec.RequestedBy} {
		if by == nil || by.Username != want || by.UID == "" || !slices.Contains(by.Groups, "system:serviceaccounts") {
			t.Errorf("%s was created by %+v", what, by)
		}
	}
}

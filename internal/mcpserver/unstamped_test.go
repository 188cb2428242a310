package mcpserver

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/apiservertest"
)

// Where nobody else does, the server fills in who creates calls and sessions: the user for whom it acts, as the API server sees that user.
func TestTheServerSaysWhoAsks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	apiservertest.Unstamp(t, s.admin, s.namespace)
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
		if by == nil || by.Username != want || by.UID != "" || !slices.Contains(by.Groups, "system:serviceaccounts") {
			t.Errorf("%s was created by %+v", what, by)
		}
	}
}

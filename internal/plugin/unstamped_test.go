package plugin

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/apiservertest"
)

// Where nobody else does, the plugin fills in who creates calls and sessions.
func TestThePluginSaysWhoAsks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	apiservertest.Unstamp(t, f.client, f.namespace)
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

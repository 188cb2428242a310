package plugin

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// Where nobody else does, the plugin fills in who creates calls and sessions.
func TestThePluginSaysWhoAsks(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	apiservertest.Unstamp(t, f.Client, f.Namespace)
	user := f.User([]string{"toolcall-user"}, "ls")
	f.Run("run", "--as", user, "--detach", "--name", "first", "--", "ls").Expect(t, 0, "first")
	f.End("first", plugintest.Succeeded())
	f.Run("rerun", "--as", user, "first", "--detach", "--name", "second").Expect(t, 0, "second")
	f.Run("session", "start", "dev", "--as", user, "--detach").Expect(t, 0, "dev")
	f.Run("check", "--as", user, "--", "ls").Expect(t, 125, "Requester: "+user)
	session := &v1alpha1.ToolSession{}
	if err := f.Client.Get(t.Context(), client.ObjectKey{Namespace: f.Namespace, Name: "dev"}, session); err != nil {
		t.Fatal(err)
	}
	for name, by := range map[string]*v1alpha1.Requester{
		"first": f.Call("first").Spec.RequestedBy, "second": f.Call("second").Spec.RequestedBy, "dev": session.Spec.RequestedBy,
	} {
		if by == nil || by.Username != user || !slices.Equal(by.Groups, []string{"system:authenticated"}) {
			t.Errorf("%s was created by %+v", name, by)
		}
	}
}

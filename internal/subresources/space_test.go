package subresources_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// space is a namespace of one test.
type space struct {
	*cluster
	t         *testing.T
	namespace string
}

func newSpace(t *testing.T) *space {
	t.Helper()
	namespace, _ := suite.Need(t).Namespace(t, "t-")
	return &space{cluster: shared, t: t, namespace: namespace}
}

// run is kubectl in the space's namespace; a failure ends the test.
func (s *space) run(args ...string) string {
	s.t.Helper()
	said, err := s.Kubectl("", append([]string{"--namespace", s.namespace}, args...)...)
	if err != nil {
		s.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, said)
	}
	return said
}

// as is a user's configuration.
func (s *space) as(user string) *rest.Config {
	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, UID: "uid-of-" + user, Groups: []string{"system:authenticated"}}
	return config
}

// clientOf is a user's client.
func (s *space) clientOf(user string) client.Client {
	s.t.Helper()
	c, err := client.New(s.as(user), client.Options{Scheme: s.scheme})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// bind gives a user a role of the cluster in the namespace.
func (s *space) bind(user, role string) {
	s.t.Helper()
	s.run("create", "rolebinding", user+"-"+role, "--clusterrole="+role, "--user="+user)
}

// grant gives a user a verb on a resource in the namespace, as group/resource.
func (s *space) grant(user, verb, resource string, names ...string) {
	s.t.Helper()
	group, resource, _ := strings.Cut(resource, "/")
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, GenerateName: "r-"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: names}},
	}
	if err := s.admin.Create(s.t.Context(), role); err != nil {
		s.t.Fatal(err)
	}
	s.run("create", "rolebinding", role.Name, "--role="+role.Name, "--user="+user)
}

// create makes a call as the user that has the right to.
func (s *space) create(c client.Client, name, session string) *v1alpha1.ToolCall {
	s.t.Helper()
	call := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "ls"}},
	}
	if session != "" {
		call.Spec.SessionRef = &v1alpha1.SessionReference{Name: session}
	}
	// What vouches for requesters is in force a moment after it was created.
	eventually(s.t, func() error { return c.Create(s.t.Context(), call) })
	return call
}

// setStatus writes a call's status, as the operator does.
func (s *space) setStatus(call *v1alpha1.ToolCall, status v1alpha1.ToolCallStatus) {
	s.t.Helper()
	before := call.DeepCopy()
	call.Status = status
	if err := s.admin.Status().Patch(s.t.Context(), call, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// finished is a call with a status that keeps all of a text on stdout.
func (s *space) finished(name, stdout string) *v1alpha1.ToolCall {
	s.t.Helper()
	call := s.create(s.admin, name, "")
	s.setStatus(call, finishedStatus(stdout))
	return call
}

func finishedStatus(stdout string) v1alpha1.ToolCallStatus {
	return v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseSucceeded, Reason: v1alpha1.ReasonCompleted, Stdout: stdout,
		Streams: &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: int64(len(stdout)), SHA256: sum([]byte(stdout))}},
	}
}

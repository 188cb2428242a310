package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/testing/apitest"
)

// server is the API server of all tests; nil when there is none.
var server *apiServer

type apiServer struct {
	client     client.WithWatch
	kubeconfig string
	outputs    *apitest.API
	// bare is what commands printed before the kinds were installed.
	bare []printed
	// bareDoctor is what doctor found then.
	bareDoctor printed
	// bareSessions is what commands about sessions printed then.
	bareSessions []printed
}

// printed is what a command printed, and its exit code.
type printed struct {
	out, err string
	code     int
}

// asPlugin in the environment has the test's program be the plugin: examples run it from a shell.
const asPlugin = "TOOLCALL_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		os.Exit(Main(os.Args[1:]))
	}
	os.Exit(suite.Run(m))
}

// suite begins without the kinds of the project.
var suite = &apiservertest.Suite{
	Options: apiservertest.Options{Configure: func(env *envtest.Environment, folder string) error {
		_, err := apitest.Prepare(env, folder)
		return err
	}},
	Setup: func(s *apiservertest.Server) error {
		server = &apiServer{kubeconfig: s.Kubeconfig}
		return server.setup(s)
	},
	Teardown: func() error {
		if server == nil || server.outputs == nil {
			return nil
		}
		return server.outputs.Stop()
	},
	Reads: []string{"config/crd", "config/admission", "config/rbac"},
	// The signal package keeps a goroutine once a program has asked for signals.
	FindLeaks: true, Leaks: append(apitest.Leaks(), goleak.IgnoreTopFunction("os/signal.signal_recv")),
}

// setup installs the kinds, the admission policies and the roles of the project.
func (s *apiServer) setup(there *apiservertest.Server) (err error) {
	for _, line := range []string{"run -- ls", "get", "get a", "logs a", "wait a", "cancel a", "env list", "top", "tools", "delete a", "delete --all", "rerun a", "wait --all", "env describe a", "get --watch"} {
		s.bare = append(s.bare, s.runBare(line))
	}
	s.bareDoctor = s.runBare("doctor")
	for _, line := range []string{
		"session start", "session list", "session describe a", "session end a", "session shell a", "session exec a -- ls", "run --session a -- ls",
	} {
		s.bareSessions = append(s.bareSessions, s.runBare(line))
	}
	if err := there.InstallCRDs(); err != nil {
		return err
	}
	if s.client, err = there.Client(); err != nil {
		return err
	}
	if s.outputs, err = apitest.Start(there.Config); err != nil {
		return err
	}
	return there.Install(
		"admission/requested_by.yaml", "admission/identity.yaml", "admission/session_requested_by.yaml", "admission/session_identity.yaml",
		"admission/session_spec.yaml", "rbac/user_roles.yaml",
	)
}

// runBare runs a command before the kinds are installed.
func (s *apiServer) runBare(line string) (p printed) {
	p.out, p.err, p.code = command("", append([]string{"--kubeconfig", s.kubeconfig}, strings.Fields(line)...)...)
	return p
}

// fixture is the namespace of a test.
type fixture struct {
	*apiServer
	t         *testing.T
	namespace string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	namespace, _ := suite.Need(t).Namespace(t, "plugin-")
	return &fixture{apiServer: server, t: t, namespace: namespace}
}

func (f *fixture) make(objects ...client.Object) {
	f.t.Helper()
	for _, o := range objects {
		if err := f.client.Create(f.t.Context(), o); err != nil {
			f.t.Fatal(err)
		}
	}
}

// policy creates a policy with the name of the namespace, which allows shell commands.
func (f *fixture) policy(change ...func(*v1alpha1.ExecutionPolicySpec)) {
	f.t.Helper()
	p := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	p.Spec.Shell = &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}
	for _, c := range change {
		c(&p.Spec)
	}
	f.make(p)
}

// environment creates an environment under that policy.
func (f *fixture) environment(name string, isDefault bool, env ...v1alpha1.EnvVar) {
	f.t.Helper()
	e := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}}
	if isDefault {
		e.Annotations = map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"}
	}
	e.Spec = v1alpha1.ExecutionEnvironmentSpec{Image: "example.com/tools:1", PolicyRef: &v1alpha1.PolicyReference{Name: f.namespace}, Env: env}
	f.make(e)
}

// user creates a user with roles of the project in the namespace, and the permission to use tools.
func (f *fixture) user(roles []string, tools ...string) string {
	f.t.Helper()
	name := f.namespace + "-user"
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"toolcall.dev"}, Resources: []string{"tools"}, ResourceNames: tools, Verbs: []string{"use"}}}
	f.make(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "tools"}, Rules: rules})
	for _, role := range append(roles, "tools") {
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		if role == "tools" {
			ref.Kind = "Role"
		}
		if role == "toolcall-policy-viewer" {
			f.make(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref, Subjects: subjects})
			continue
		}
		f.make(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: role}, RoleRef: ref, Subjects: subjects})
	}
	// The last binding is the last to take effect.
	f.awaitRight(name, tools[0])
	return name
}

func (f *fixture) awaitRight(user, tool string) {
	f.t.Helper()
	for range 200 {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: f.namespace, Verb: "use", Group: "toolcall.dev", Resource: "tools", Name: tool,
			},
		}}
		f.make(review)
		if review.Status.Allowed {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	f.t.Fatalf("%s may not use %s", user, tool)
}

// run runs a command in the namespace.
func (f *fixture) run(args ...string) printed {
	f.t.Helper()
	out, errs, code := command("print(1)\n", append([]string{"--kubeconfig", f.kubeconfig, "-n", f.namespace}, args...)...)
	return printed{out, errs, code}
}

// as returns what runs commands as a user, with credentials of the user's own.
func (f *fixture) as(user string) func(args ...string) printed {
	f.t.Helper()
	config, err := suite.Need(f.t).KubeconfigOf(user)
	if err != nil {
		f.t.Fatal(err)
	}
	path := filepath.Join(f.t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		f.t.Fatal(err)
	}
	return func(args ...string) printed {
		out, errs, code := commandAt(path, append([]string{"-n", f.namespace}, args...)...)
		return printed{out, errs, code}
	}
}

// end finishes a call, as the operator does.
func (f *fixture) end(name string, status v1alpha1.ToolCallStatus) {
	f.t.Helper()
	call := &v1alpha1.ToolCall{}
	if err := f.client.Get(f.t.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, call); err != nil {
		f.t.Fatal(err)
	}
	before := call.DeepCopy()
	call.Status = status
	meta.SetStatusCondition(&call.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue, Reason: status.Reason})
	if err := f.client.Status().Patch(f.t.Context(), call, client.MergeFrom(before)); err != nil {
		f.t.Fatal(err)
	}
}

// expect expects an exit code and parts of what was printed, with any white space.
func (p printed) expect(t *testing.T, code int, parts ...string) {
	t.Helper()
	all := strings.Join(strings.Fields(p.out+" "+p.err), " ")
	if p.code != code {
		t.Errorf("exit code %d, not %d: %s%s", p.code, code, p.out, p.err)
	}
	for _, part := range parts {
		if !strings.Contains(all, part) {
			t.Errorf("%q isn't in\n%s%s", part, p.out, p.err)
		}
	}
}

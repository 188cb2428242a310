package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/subresources/apitest"
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
	ctrllog.SetLogger(logr.Discard())
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "the tests that need an API server are skipped: set KUBEBUILDER_ASSETS, e.g. to the output of 'make -s envtest-assets'")
		return m.Run()
	}
	env := &envtest.Environment{ControlPlaneStartTimeout: testTimeout}
	dir, err := os.MkdirTemp("", "plugin")
	if err == nil {
		defer os.RemoveAll(dir)
		server, err = startServer(env, filepath.Join(dir, "kubeconfig"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the API server:", err)
		_ = env.Stop()
		return 1
	}
	return max(m.Run(), stopAndFindLeaks(env))
}

// stopAndFindLeaks stops the API server, which ends the connections to it, and reports goroutines that tests left.
func stopAndFindLeaks(env *envtest.Environment) (code int) {
	if err := errors.Join(server.outputs.Stop(), env.Stop()); err != nil {
		fmt.Fprintln(os.Stderr, "stop the API server:", err)
	}
	// The signal package keeps a goroutine once a program has asked for signals.
	if err := goleak.Find(append(apitest.Leaks(), goleak.IgnoreTopFunction("os/signal.signal_recv"))...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startServer starts an API server, and installs the kinds, the admission policies and the roles of the project.
func startServer(env *envtest.Environment, kubeconfig string) (*apiServer, error) {
	if _, err := apitest.Prepare(env, filepath.Dir(kubeconfig)); err != nil {
		return nil, err
	}
	config, err := env.Start()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(kubeconfig, env.KubeConfig, 0o600); err != nil {
		return nil, err
	}
	s := &apiServer{kubeconfig: kubeconfig}
	for _, line := range []string{"run -- ls", "get", "get a", "logs a", "wait a", "cancel a", "env list", "top", "tools", "delete a", "delete --all", "rerun a", "wait --all", "env describe a", "get --watch"} {
		s.bare = append(s.bare, s.runBare(line))
	}
	s.bareDoctor = s.runBare("doctor")
	for _, line := range []string{
		"session start", "session list", "session describe a", "session end a", "session shell a", "session exec a -- ls", "run --session a -- ls",
	} {
		s.bareSessions = append(s.bareSessions, s.runBare(line))
	}
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{"../../config/crd"}}); err != nil {
		return nil, err
	}
	all := scheme()
	if err := clientgoscheme.AddToScheme(all); err != nil {
		return nil, err
	}
	if s.client, err = client.NewWithWatch(config, client.Options{Scheme: all}); err != nil {
		return nil, err
	}
	if s.outputs, err = apitest.Start(config); err != nil {
		return nil, err
	}
	for _, file := range []string{
		"admission/requested_by.yaml", "admission/identity.yaml", "admission/session_requested_by.yaml", "admission/session_identity.yaml",
		"admission/session_spec.yaml", "rbac/user_roles.yaml",
	} {
		if err := s.install(file); err != nil {
			return nil, fmt.Errorf("install %s: %w", file, err)
		}
	}
	return s, s.awaitAdmission()
}

// runBare runs a command before the kinds are installed.
func (s *apiServer) runBare(line string) (p printed) {
	p.out, p.err, p.code = command("", append([]string{"--kubeconfig", s.kubeconfig}, strings.Fields(line)...)...)
	return p
}

func (s *apiServer) install(file string) error {
	raw, err := os.ReadFile(filepath.Join("../../config", file))
	if err != nil {
		return err
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(o); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := exceptUnstamped(o); err != nil {
			return err
		}
		if err := s.client.Create(context.Background(), o); err != nil {
			return err
		}
	}
}

// awaitAdmission waits until admission records the requester of a call and of a session.
func (s *apiServer) awaitAdmission() error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		probe := &v1alpha1.ToolCall{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"},
			Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "x"}},
		}
		err := s.client.Create(context.Background(), probe, client.DryRunAll)
		session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}}
		err = errors.Join(err, s.client.Create(context.Background(), session, client.DryRunAll))
		if err == nil && probe.Spec.RequestedBy != nil && session.Spec.RequestedBy != nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the admission policies are not in force: %w", err)
		}
	}
}

// fixture is the namespace of a test.
type fixture struct {
	*apiServer
	t         *testing.T
	namespace string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	if server == nil {
		t.Skip("needs an API server: set KUBEBUILDER_ASSETS")
	}
	f := &fixture{apiServer: server, t: t}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "plugin-"}}
	f.make(namespace)
	f.namespace = namespace.Name
	return f
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

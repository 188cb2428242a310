// Package plugintest runs commands of the kubectl plugin against an API server, in the place of a user and of the operator. The packages
// of internal/plugin share it.
package plugintest

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/testing/apitest"
)

// server is the API server of all tests; nil when there is none.
var server *apiServer

type apiServer struct {
	Client     client.WithWatch
	Kubeconfig string
	Outputs    *apitest.API
	// Bare is what commands printed before the kinds were installed.
	Bare map[string]Printed
}

// Printed is what a command printed, and its exit code.
type Printed struct {
	Out, Err string
	Code     int
}

// tested are the commands that tests run, and bareLines those that are run before the kinds are installed.
var (
	tested    func(*cli.CLI) []*cobra.Command
	bareLines []string
)

// Main runs the tests of some commands.
func Main(m *testing.M, commands func(*cli.CLI) []*cobra.Command, bare ...string) int {
	tested, bareLines = commands, bare
	return suite.Run(m)
}

// TestCLI is a program of the tested commands.
func TestCLI(streams genericiooptions.IOStreams) *cli.CLI { return cli.New(streams, tested) }

// suite begins without the kinds of the project.
var suite = &apiservertest.Suite{
	Options: apiservertest.Options{Configure: func(env *envtest.Environment, folder string) error {
		_, err := apitest.Prepare(env, folder)
		return err
	}},
	Setup: func(s *apiservertest.Server) error {
		server = &apiServer{Kubeconfig: s.Kubeconfig}
		return server.setup(s)
	},
	Teardown: func() error {
		if server == nil || server.Outputs == nil {
			return nil
		}
		return server.Outputs.Stop()
	},
	Reads: []string{"config/crd", "config/admission", "config/rbac"},
	// The signal package keeps a goroutine once a program has asked for signals.
	FindLeaks: true, Leaks: append(apitest.Leaks(), goleak.IgnoreTopFunction("os/signal.signal_recv")),
}

// setup installs the kinds, the admission policies and the roles of the project.
func (s *apiServer) setup(there *apiservertest.Server) (err error) {
	s.Bare = map[string]Printed{}
	for _, line := range bareLines {
		s.Bare[line] = s.runBare(line)
	}
	if err := there.InstallCRDs(); err != nil {
		return err
	}
	if s.Client, err = there.Client(); err != nil {
		return err
	}
	if s.Outputs, err = apitest.Start(there.Config); err != nil {
		return err
	}
	err = there.Install(
		"admission/requested_by.yaml", "admission/identity.yaml", "admission/session_requested_by.yaml", "admission/session_identity.yaml",
		"admission/session_spec.yaml", "admission/approver.yaml", "admission/approval_identity.yaml", "rbac/user_roles.yaml",
	)
	// The operator believes stamps only on what is younger than the policies, in whole seconds.
	time.Sleep(2 * time.Second)
	return err
}

// runBare runs a command before the kinds are installed.
func (s *apiServer) runBare(line string) (p Printed) {
	p.Out, p.Err, p.Code = Run("", append([]string{"--kubeconfig", s.Kubeconfig}, strings.Fields(line)...)...)
	return p
}

// Fixture is the namespace of a test.
type Fixture struct {
	*apiServer
	T         *testing.T
	Namespace string
}

func New(t *testing.T) *Fixture {
	t.Helper()
	namespace, _ := suite.Need(t).Namespace(t, "plugin-")
	return &Fixture{apiServer: server, T: t, Namespace: namespace}
}

func (f *Fixture) Make(objects ...client.Object) {
	f.T.Helper()
	for _, o := range objects {
		if err := f.Client.Create(f.T.Context(), o); err != nil {
			f.T.Fatal(err)
		}
	}
}

// Policy creates a policy with the name of the namespace, which allows shell commands.
func (f *Fixture) Policy(change ...func(*v1alpha1.ExecutionPolicySpec)) {
	f.T.Helper()
	p := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: f.Namespace}}
	p.Spec.Shell = &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}
	for _, c := range change {
		c(&p.Spec)
	}
	f.Make(p)
}

// Environment creates an environment under that policy.
func (f *Fixture) Environment(name string, isDefault bool, env ...v1alpha1.EnvVar) {
	f.T.Helper()
	e := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: name}}
	if isDefault {
		e.Annotations = map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"}
	}
	e.Spec = v1alpha1.ExecutionEnvironmentSpec{Image: "example.com/tools:1", PolicyRef: &v1alpha1.PolicyReference{Name: f.Namespace}, Env: env}
	f.Make(e)
}

// User creates a user with roles of the project in the namespace, and the permission to use tools.
func (f *Fixture) User(roles []string, tools ...string) string {
	f.T.Helper()
	name := f.Namespace + "-user"
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"toolcall.dev"}, Resources: []string{"tools"}, ResourceNames: tools, Verbs: []string{"use"}}}
	f.Make(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "tools"}, Rules: rules})
	for _, role := range append(roles, "tools") {
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		if role == "tools" {
			ref.Kind = "Role"
		}
		if role == "toolcall-policy-viewer" {
			f.Make(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref, Subjects: subjects})
			continue
		}
		f.Make(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: role}, RoleRef: ref, Subjects: subjects})
	}
	// The last binding is the last to take effect.
	f.AwaitRight(name, tools[0])
	return name
}

func (f *Fixture) AwaitRight(user, tool string) {
	f.T.Helper()
	for range 200 {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: f.Namespace, Verb: "use", Group: "toolcall.dev", Resource: "tools", Name: tool,
			},
		}}
		f.Make(review)
		if review.Status.Allowed {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	f.T.Fatalf("%s may not use %s", user, tool)
}

// Run runs a command in the namespace.
func (f *Fixture) Run(args ...string) Printed {
	f.T.Helper()
	out, errs, code := Run("print(1)\n", append([]string{"--kubeconfig", f.Kubeconfig, "-n", f.Namespace}, args...)...)
	return Printed{out, errs, code}
}

// As returns what runs commands as a user, with credentials of the user's own.
func (f *Fixture) As(user string) func(args ...string) Printed {
	f.T.Helper()
	config, err := suite.Need(f.T).KubeconfigOf(user)
	if err != nil {
		f.T.Fatal(err)
	}
	path := kubeconfigFile(f.T, string(config))
	return func(args ...string) Printed {
		out, errs, code := CommandAt(path, append([]string{"-n", f.Namespace}, args...)...)
		return Printed{out, errs, code}
	}
}

// End finishes a call, as the operator does.
func (f *Fixture) End(name string, status v1alpha1.ToolCallStatus) {
	f.T.Helper()
	setStatus(f, name, &v1alpha1.ToolCall{}, func(call *v1alpha1.ToolCall) { call.Status = *Finished(status) })
}

// Expect expects an exit code and parts of what was printed, with any white space.
func (p Printed) Expect(t *testing.T, code int, parts ...string) {
	t.Helper()
	all := strings.Join(strings.Fields(p.Out+" "+p.Err), " ")
	if p.Code != code {
		t.Errorf("exit code %d, not %d: %s%s", p.Code, code, p.Out, p.Err)
	}
	for _, part := range parts {
		if !strings.Contains(all, part) {
			t.Errorf("%q isn't in\n%s%s", part, p.Out, p.Err)
		}
	}
}

// Proxied is a kubeconfig of a proxy in front of the API server, which a test can change.
func (f *Fixture) Proxied(change func(w http.ResponseWriter, r *http.Request, next http.Handler)) string {
	f.T.Helper()
	raw, err := os.ReadFile(f.Kubeconfig)
	if err != nil {
		f.T.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		f.T.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		f.T.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		f.T.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { change(w, r, proxy) }))
	f.T.Cleanup(server.Close)
	return kubeconfigFile(f.T, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: k, cluster: {server: "%s"}}], contexts: [{name: c, context: {cluster: k}}]}`, server.URL))
}

// Failing is a kubeconfig of a proxy in front of the API server that answers requests for objects of these names with an error, and how
// many there were.
func (f *Fixture) Failing(message string, names ...string) (kubeconfig string, failed *atomic.Int32) {
	failed = &atomic.Int32{}
	return f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if slices.Contains(names, path.Base(r.URL.Path)) {
			failed.Add(1)
			Refuse(w, http.StatusInternalServerError, "InternalError", message)
			return
		}
		next.ServeHTTP(w, r)
	}), failed
}

func kubeconfigFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Completions are the sorted proposals for a command line.
func Completions(t *testing.T, kubeconfig, namespace string, words ...string) string {
	t.Helper()
	args := append([]string{"__complete", "--kubeconfig", kubeconfig}, "-n", namespace)
	out, _, code := Run("", append(args, words...)...)
	if code != 0 {
		t.Errorf("%q: exit code %d", words, code)
	}
	var names []string
	for line := range strings.Lines(out) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); name != "" && !strings.HasPrefix(name, ":") {
			names = append(names, name)
		}
	}
	return SortedFields(strings.Join(names, " "))
}

// Offline returns a kubeconfig of a cluster that doesn't exist.
func Offline(t *testing.T) string {
	t.Helper()
	return kubeconfigFile(t, `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: k, cluster: {server: "https://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: k, namespace: agents}}]}`)
}

// Run runs a command line and returns what it printed and its exit code.
func Run(stdin string, args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = TestCLI(genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &errs}).Execute(args)
	return out.String(), errs.String(), code
}

// CommandAt runs a command line with a kubeconfig.
func CommandAt(kubeconfig string, args ...string) (stdout, stderr string, code int) {
	return Run("", append([]string{"--kubeconfig", kubeconfig}, args...)...)
}

// TestTimeout bounds every wait, so that a test that fails ends.
const TestTimeout = 2 * time.Minute

// Eventually waits until a condition holds.
func (f *Fixture) Eventually(what string, holds func() bool) {
	f.T.Helper()
	for deadline := time.Now().Add(TestTimeout); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.T.Fatalf("no %s", what)
		}
	}
}

// ReadEnvironment reads an environment.
func (f *Fixture) ReadEnvironment(name string) *v1alpha1.ExecutionEnvironment {
	f.T.Helper()
	return read(f, name, &v1alpha1.ExecutionEnvironment{})
}

// SetReady writes what the operator writes about an environment.
func (f *Fixture) SetReady(name string, status metav1.ConditionStatus, reason string, warm *v1alpha1.WarmStatus) {
	f.T.Helper()
	setStatus(f, name, &v1alpha1.ExecutionEnvironment{}, func(env *v1alpha1.ExecutionEnvironment) {
		env.Status.Warm = warm
		meta.SetStatusCondition(&env.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: status, Reason: reason})
	})
}

func ResourceOf(size string) resource.Quantity { return resource.MustParse(size) }

func Refuse(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`, code, reason, message)
}

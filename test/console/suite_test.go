package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/console"
	"toolcall.dev/operator/internal/subresources/apitest"
)

// What all tests share: the API server, the aggregated API behind it, and the browser; nil if there are none.
var (
	apiServer *rest.Config
	outputs   *apitest.API
	browser   *chromium
)

// testTimeout bounds every wait, so that a test that fails ends.
const testTimeout = 30 * time.Second

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "the tests are skipped: set KUBEBUILDER_ASSETS, e.g. to the output of 'make -s envtest-assets'")
		return m.Run()
	}
	env := &envtest.Environment{CRDDirectoryPaths: []string{"../../config/crd"}, ErrorIfCRDPathMissing: true, ControlPlaneStartTimeout: 2 * testTimeout}
	dir, err := os.MkdirTemp("", "console")
	if err == nil {
		defer os.RemoveAll(dir)
		err = start(env, dir)
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the API server and the browser:", err)
	} else {
		code = m.Run()
	}
	if browser != nil {
		err = browser.stop()
	}
	if outputs != nil {
		err = errors.Join(err, outputs.Stop())
	}
	if err := errors.Join(err, env.Stop()); err != nil {
		fmt.Fprintln(os.Stderr, "stop the API server and the browser:", err)
	}
	return code
}

func start(env *envtest.Environment, dir string) error {
	if _, err := apitest.Prepare(env, dir); err != nil {
		return err
	}
	conf, err := env.Start()
	if err != nil {
		return err
	}
	conf.QPS = -1
	apiServer = conf
	if outputs, err = apitest.Start(conf); err != nil {
		return err
	}
	browser, err = startChromium()
	return err
}

// fixture is the namespace of a test, and a console.
type fixture struct {
	t         *testing.T
	namespace string
	admin     client.Client
	clients   *kubernetes.Clientset
	console   *httptest.Server
}

// newFixture serves a console, behind a function that may answer some requests in its place.
func newFixture(t *testing.T, instead ...func(w http.ResponseWriter, r *http.Request) bool) *fixture {
	t.Helper()
	if apiServer == nil {
		t.Skip("needs an API server: set KUBEBUILDER_ASSETS")
	}
	scheme := runtime.NewScheme()
	must(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	admin, err := client.New(apiServer, client.Options{Scheme: scheme})
	must(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "page-"}}
	must(t, admin.Create(t.Context(), namespace))
	ctx, stop := context.WithCancel(context.Background())
	o := &console.Options{Hosts: []string{"127.0.0.1"}, MaxRequests: 64, MaxRequestsPerToken: 32}
	handler, err := console.NewHandler(ctx, o, apiServer, slog.New(slog.DiscardHandler))
	must(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, answers := range instead {
			if answers(w, r) {
				return
			}
		}
		handler.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() { stop(); server.CloseClientConnections(); server.Close() })
	return &fixture{t: t, namespace: namespace.Name, admin: admin, clients: kubernetes.NewForConfigOrDie(apiServer), console: server}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// user creates a ServiceAccount with permissions, and returns a token for it.
func (f *fixture) user(name string, rules ...rbacv1.PolicyRule) (token string) {
	f.t.Helper()
	account := metav1.ObjectMeta{Namespace: f.namespace, Name: name}
	must(f.t, f.admin.Create(f.t.Context(), &corev1.ServiceAccount{ObjectMeta: account}))
	if len(rules) > 0 {
		must(f.t, f.admin.Create(f.t.Context(), &rbacv1.Role{ObjectMeta: account, Rules: rules}))
		must(f.t, f.admin.Create(f.t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: account, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: name}},
		}))
	}
	request, err := f.clients.CoreV1().ServiceAccounts(f.namespace).CreateToken(f.t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(f.t, err)
	return request.Status.Token
}

// viewer is a user with the rights of the ClusterRole toolcall-viewer.
func (f *fixture) viewer() (token string) {
	f.t.Helper()
	return f.user("viewer",
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolcalls", "toolsessions", "executionenvironments"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{"subresources.toolcall.dev"}, Resources: []string{"toolcalls/log"}, Verbs: []string{"get"}})
}

// create makes a call with a shell command.
func (f *fixture) create(name, command string, change ...func(*v1alpha1.ToolCall)) *v1alpha1.ToolCall {
	f.t.Helper()
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}}
	call.Spec.Shell = &v1alpha1.ShellAction{Command: command}
	for _, c := range change {
		c(call)
	}
	must(f.t, f.admin.Create(f.t.Context(), call))
	return call
}

// report writes a call's status, as the operator does.
func (f *fixture) report(call *v1alpha1.ToolCall, status v1alpha1.ToolCallStatus) {
	f.t.Helper()
	call.Status = status
	must(f.t, f.admin.Status().Update(f.t.Context(), call))
}

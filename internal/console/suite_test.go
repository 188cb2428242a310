package console

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
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
	"toolcall.dev/operator/internal/subresources/apitest"
)

// apiServer is the API server of all tests, and outputs the aggregated API behind it; nil if there are none.
var (
	apiServer *rest.Config
	outputs   *apitest.API
)

// testTimeout bounds every wait, so that a test that fails ends.
const testTimeout = time.Minute

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "the tests that need an API server are skipped: set KUBEBUILDER_ASSETS, e.g. to the output of 'make -s envtest-assets'")
		return m.Run()
	}
	env := &envtest.Environment{CRDDirectoryPaths: []string{"../../config/crd"}, ErrorIfCRDPathMissing: true, ControlPlaneStartTimeout: testTimeout}
	dir, err := os.MkdirTemp("", "console")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := startServer(env, dir); err != nil {
		fmt.Fprintln(os.Stderr, "start the API server:", err)
		_ = env.Stop()
		return 1
	}
	code := m.Run()
	return max(code, stopAndFindLeaks(env))
}

func startServer(env *envtest.Environment, dir string) error {
	if _, err := apitest.Prepare(env, dir); err != nil {
		return err
	}
	conf, err := env.Start()
	if err != nil {
		return err
	}
	conf.QPS = -1
	apiServer = conf
	outputs, err = apitest.Start(conf)
	return err
}

// stopAndFindLeaks stops the API server, which ends the connections to it, and reports goroutines that tests left.
func stopAndFindLeaks(env *envtest.Environment) (code int) {
	if err := errors.Join(outputs.Stop(), env.Stop()); err != nil {
		fmt.Fprintln(os.Stderr, "stop the API server:", err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if err := goleak.Find(apitest.Leaks()...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// fixture is the namespace of a test, and a console that serves it.
type fixture struct {
	t         *testing.T
	namespace string
	admin     client.WithWatch
	clients   *kubernetes.Clientset
	console   *httptest.Server
	// stop has the console stop, as a signal does.
	stop context.CancelFunc
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	if apiServer == nil {
		t.Skip("needs an API server: set KUBEBUILDER_ASSETS")
	}
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, v1alpha1.AddToScheme(scheme))
	admin, err := client.NewWithWatch(apiServer, client.Options{Scheme: scheme})
	must(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "console-"}}
	must(t, admin.Create(t.Context(), namespace))
	f := &fixture{t: t, namespace: namespace.Name, admin: admin, clients: kubernetes.NewForConfigOrDie(apiServer)}
	f.console, f.stop = serve(t, apiServer, testOptions())
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func testOptions() *Options {
	return &Options{Hosts: []string{"127.0.0.1", "localhost", "Console.test"}, MaxRequests: 8, MaxRequestsPerToken: 4}
}

// serve serves a console over TLS, as Serve does.
func serve(t *testing.T, api *rest.Config, o *Options) (*httptest.Server, context.CancelFunc) {
	t.Helper()
	return serveLogging(t, api, o, slog.New(slog.DiscardHandler))
}

func serveLogging(t *testing.T, api *rest.Config, o *Options, log *slog.Logger) (*httptest.Server, context.CancelFunc) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	handler, err := NewHandler(ctx, o, api, log)
	must(t, err)
	server := httptest.NewUnstartedServer(handler)
	o.CertFile = ""
	configured, _, err := o.newServer(ctx, handler, nil, nil)
	must(t, err)
	configured.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.Config = configured
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() { stop(); server.Close() })
	return server, stop
}

// request changes a request before it is sent.
type request func(*http.Request)

func withToken(token string) request { return withHeader("Authorization", "Bearer "+token) }

func withHeader(name, value string) request {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func send(t *testing.T, server *httptest.Server, path string, changes ...request) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
	must(t, err)
	for _, change := range changes {
		change(r)
	}
	response, err := server.Client().Do(r)
	must(t, err)
	t.Cleanup(func() { response.Body.Close() })
	return response
}

func read(t *testing.T, response *http.Response) string {
	t.Helper()
	raw, err := io.ReadAll(response.Body)
	must(t, err)
	return string(raw)
}

// statusOf is the error that an answer is.
func statusOf(t *testing.T, response *http.Response) metav1.Status {
	t.Helper()
	s := metav1.Status{}
	must(t, json.Unmarshal([]byte(read(t, response)), &s))
	if s.Kind != "Status" || int(s.Code) != response.StatusCode {
		t.Errorf("code %d with %+v", response.StatusCode, s)
	}
	return s
}

// raw sends bytes over HTTP/1.1 and returns the code and the header lines of the answer.
func raw(t *testing.T, server *httptest.Server, text string) (code int, header http.Header, body string) {
	t.Helper()
	address := strings.TrimPrefix(server.URL, "https://")
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com"})
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(testTimeout)))
	_, err = io.WriteString(conn, text)
	must(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer response.Body.Close()
	content, _ := io.ReadAll(response.Body)
	return response.StatusCode, response.Header, string(content)
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

// reads are the rights of the ClusterRole toolcall-viewer.
func reads() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolcalls", "toolsessions", "executionenvironments"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{outputGroup}, Resources: []string{"toolcalls/log"}, Verbs: []string{"get"}},
	}
}

func (f *fixture) newCall(name, command string) *v1alpha1.ToolCall {
	f.t.Helper()
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}}
	call.Spec.Shell = &v1alpha1.ShellAction{Command: command}
	must(f.t, f.admin.Create(f.t.Context(), call))
	return call
}

// list is the path of the namespace's calls, log that of a call's output.
func (f *fixture) list() string {
	return "/apis/toolcall.dev/v1alpha1/namespaces/" + f.namespace + "/toolcalls"
}

func (f *fixture) log(call string) string {
	return "/apis/subresources.toolcall.dev/v1alpha1/namespaces/" + f.namespace + "/toolcalls/" + call + "/log"
}

package console

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/testing/apitest"
)

// outputs is the aggregated API behind the API server; nil if there is none.
var outputs *apitest.API

var suite = apitest.Suite(&outputs, installAdmission)

// testTimeout bounds every wait, so that a test that fails ends.
const testTimeout = time.Minute

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// fixture is the namespace of a test, and a console that serves it.
type fixture struct {
	t         *testing.T
	namespace string
	admin     client.WithWatch
	console   *httptest.Server
	// stop has the console stop, as a signal does.
	stop context.CancelFunc
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	server := suite.Need(t)
	f := &fixture{t: t}
	f.namespace, f.admin = server.Namespace(t, "console-")
	f.console, f.stop = serve(t, server.Config, testOptions())
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
	configured := o.newServer()
	configured.Handler, configured.ErrorLog = handler, slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
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
	return apiservertest.NewAccount(f.t, f.admin, client.ObjectKey{Namespace: f.namespace, Name: name}, rules...)
}

// installAdmission has decisions checked as before Kubernetes 1.36, where nothing fills in who decides. It waits until that is so.
func installAdmission(server *apiservertest.Server) error {
	objects, err := apiservertest.Manifests("admission/approval_identity.yaml")
	if err != nil {
		return err
	}
	admin, err := server.Client()
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := admin.Create(context.Background(), o); err != nil {
			return err
		}
	}
	probe := &v1alpha1.ToolCallApproval{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}, Spec: v1alpha1.ToolCallApprovalSpec{
		CallRef: v1alpha1.CallReference{Name: "a", UID: "b"}, Digest: "sha256:" + strings.Repeat("0", 64), Decision: v1alpha1.DecisionDeny,
	}}
	return wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, testTimeout, true, func(ctx context.Context) (bool, error) {
		err := admin.Create(ctx, probe.DeepCopy(), client.DryRunAll)
		if apierrors.IsForbidden(err) {
			return true, nil
		}
		return false, err
	})
}

// reads are the rights of the ClusterRole toolcall-viewer.
func reads() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolcalls", "toolsessions", "executionenvironments"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"subresources.toolcall.dev"}, Resources: []string{"toolcalls/log"}, Verbs: []string{"get"}},
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

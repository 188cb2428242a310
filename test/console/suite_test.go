package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/console"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/testing/apitest"
)

// What all tests share: the aggregated API behind the API server, and the browser; nil if there are none.
var (
	outputs *apitest.API
	browser *chromium
)

// testTimeout bounds every wait, so that a test that fails ends.
const testTimeout = 30 * time.Second

var suite = newSuite()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// newSuite has a browser beside the API server.
func newSuite() *apiservertest.Suite {
	s := apitest.Suite(&outputs, func(*apiservertest.Server) (err error) {
		browser, err = startChromium()
		return err
	})
	stopOutputs := s.Teardown
	s.Teardown = func() (err error) {
		if browser != nil {
			err = browser.stop()
		}
		return errors.Join(err, stopOutputs())
	}
	s.FindLeaks = false
	return s
}

// fixture is the namespace of a test, and a console.
type fixture struct {
	t         *testing.T
	namespace string
	admin     client.Client
	console   *httptest.Server
}

// newFixture serves a console, behind a function that may answer some requests in its place.
func newFixture(t *testing.T, instead ...func(w http.ResponseWriter, r *http.Request) bool) *fixture {
	t.Helper()
	api := suite.Need(t)
	namespace, admin := api.Namespace(t, "agents-")
	ctx, stop := context.WithCancel(context.Background())
	o := &console.Options{Hosts: []string{"127.0.0.1"}, MaxRequests: 64, MaxRequestsPerToken: 32}
	handler, err := console.NewHandler(ctx, o, api.Config, slog.New(slog.DiscardHandler))
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
	return &fixture{t: t, namespace: namespace, admin: admin, console: server}
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
	return apiservertest.NewAccount(f.t, f.admin, client.ObjectKey{Namespace: f.namespace, Name: name}, rules...)
}

// viewer is a user with the rights of the ClusterRole toolcall-viewer, and more.
func (f *fixture) viewer(more ...rbacv1.PolicyRule) (token string) {
	f.t.Helper()
	return f.user("viewer", append(more,
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolcalls", "toolsessions", "executionenvironments"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{"subresources.toolcall.dev"}, Resources: []string{"toolcalls/log"}, Verbs: []string{"get"}})...)
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

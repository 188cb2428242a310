package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/testing/apitest"
)

// outputs is the aggregated API behind the API server; nil if there is none.
var outputs *apitest.API

// The API server records who creates calls and sessions, and checks it.
var suite = apitest.Suite(&outputs, func(s *apiservertest.Server) error {
	return s.Install("mcp/service_account.yaml", "mcp/rbac.yaml",
		"admission/requested_by.yaml", "admission/session_requested_by.yaml", "admission/identity.yaml", "admission/session_identity.yaml",
		"admission/approver.yaml", "admission/approval_identity.yaml")
})

// testTimeout bounds every wait, so that a test that fails ends.
const testTimeout = 2 * time.Minute

func TestMain(m *testing.M) {
	suite.Reads = []string{"config/admission", "config/mcp"}
	addUsers(suite)
	os.Exit(suite.Run(m))
}

// fixture is the namespace of a test, which takes the place of the operator there.
type fixture struct {
	t         *testing.T
	namespace string
	admin     client.WithWatch
	clients   *kubernetes.Clientset
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	server := suite.Need(t)
	namespace, admin := server.Namespace(t, "mcp-")
	return &fixture{t: t, namespace: namespace, admin: admin, clients: kubernetes.NewForConfigOrDie(server.Config)}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// operate finishes calls: it passes each new or changed call to decide, and writes the status that decide returns.
func (f *fixture) operate(decide func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	watching, err := f.admin.Watch(ctx, &v1alpha1.ToolCallList{}, client.InNamespace(f.namespace))
	must(f.t, err)
	var done sync.WaitGroup
	done.Go(func() {
		for event := range watching.ResultChan() {
			call, ok := event.Object.(*v1alpha1.ToolCall)
			if !ok || event.Type == watch.Deleted || call.Status.Phase.Terminal() {
				continue
			}
			if status := decide(call); status != nil {
				call.Status = *status
				err := f.admin.Status().Update(ctx, call)
				// A call that was deleted or changed meanwhile has another event.
				if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && err != nil && ctx.Err() == nil {
					f.t.Errorf("end call %s: %v", call.Name, err)
				}
			}
		}
	})
	f.t.Cleanup(func() { cancel(); watching.Stop(); done.Wait() })
}

// finishedStatus is the status of a finished call.
func finishedStatus(phase v1alpha1.Phase, reason string) *v1alpha1.ToolCallStatus {
	s := &v1alpha1.ToolCallStatus{Phase: phase, Reason: reason, Message: "message of " + reason, Output: "output of " + reason}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue, Reason: reason})
	return s
}

// echo finishes a call as if it had written its command line to standard output.
func echo(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
	s := finishedStatus(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted)
	if call.Spec.Shell != nil {
		s.Stdout, s.Output = call.Spec.Shell.Command, call.Spec.Shell.Command
	}
	s.ExitCode, s.DurationMilliseconds = ptr.To(int32(0)), ptr.To(int64(7))
	s.Streams = &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: int64(len(s.Stdout))}}
	s.Environment = &v1alpha1.ResolvedEnvironment{Name: "tools"}
	return s
}

// untilCancelled finishes a call when it is cancelled.
func untilCancelled(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
	if !call.Spec.Cancel {
		return nil
	}
	return finishedStatus(v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested)
}

// only waits until the namespace has exactly one call, which satisfies a condition, and returns it.
func (f *fixture) only(what string, wanted func(*v1alpha1.ToolCall) bool) *v1alpha1.ToolCall {
	f.t.Helper()
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		list := &v1alpha1.ToolCallList{}
		must(f.t, f.admin.List(context.Background(), list, client.InNamespace(f.namespace)))
		if len(list.Items) > 1 {
			f.t.Fatalf("there are %d calls", len(list.Items))
		}
		if len(list.Items) == 1 && wanted(&list.Items[0]) {
			return &list.Items[0]
		}
	}
	f.t.Fatalf("no call that is %s", what)
	return nil
}

func (f *fixture) none() {
	f.t.Helper()
	list := &v1alpha1.ToolCallList{}
	must(f.t, f.admin.List(context.Background(), list, client.InNamespace(f.namespace)))
	if len(list.Items) > 0 {
		f.t.Errorf("there are %d calls, want none", len(list.Items))
	}
}

// user creates a ServiceAccount with permissions, and returns a token of it for the MCP server.
func (f *fixture) user(name string, rules ...rbacv1.PolicyRule) (token string) {
	f.t.Helper()
	apiservertest.NewAccount(f.t, f.admin, client.ObjectKey{Namespace: f.namespace, Name: name}, rules...)
	return f.token(name)
}

func (f *fixture) token(account string) string {
	f.t.Helper()
	return f.tokenFor(account, defaultAudience)
}

// tokenFor returns a token for audiences, or for the API server.
func (f *fixture) tokenFor(account string, audiences ...string) string {
	f.t.Helper()
	return apiservertest.TokenOf(f.t, f.admin, client.ObjectKey{Namespace: f.namespace, Name: account}, audiences...)
}

// own is the connection of the MCP server's own account, which has the rights of config/mcp and no others.
func (f *fixture) own() *rest.Config {
	f.t.Helper()
	conf := rest.AnonymousClientConfig(suite.Server().Config)
	conf.BearerToken = apiservertest.TokenOf(f.t, f.admin, client.ObjectKey{Namespace: "toolcall-system", Name: "toolcall-mcp"})
	return conf
}

// runsCalls is the permission to create, follow and cancel calls.
func runsCalls() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolcalls"}, Verbs: []string{"create", "get", "list", "watch", "patch"}}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newTestServer returns a server. The requester is nil over HTTP.
func newTestServer(t *testing.T, requester *identity.Requester, maxCalls int) *Server {
	t.Helper()
	s := NewServer(Options{Requester: requester, MaxCalls: maxCalls, MaxCallsPerUser: maxCalls, Version: "test", Log: quiet()})
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// local is the administrator of the API server.
func (f *fixture) local() *identity.Requester {
	f.t.Helper()
	requester, err := identity.Local(suite.Server().Config, f.namespace)
	must(f.t, err)
	return requester
}

// connected connects the SDK's client to a server in memory.
func connected(t *testing.T, s *Server, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	served := make(chan error, 1)
	go func() { served <- s.Run(context.Background(), there) }()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options).Connect(t.Context(), here, nil)
	must(t, err)
	t.Cleanup(func() {
		_ = session.Close()
		// A client that ends doesn't wait for the answers that it has given up.
		if err := <-served; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the server ended with: %v", err)
		}
	})
	return session
}

// use calls a tool and decodes the answer.
func use(t *testing.T, session *mcp.ClientSession, tool string, arguments any) (*mcp.CallToolResult, reply.Result) {
	t.Helper()
	answer, err := session.CallTool(t.Context(), &mcp.CallToolParams{Meta: mcp.Meta{reply.MetaKey: true}, Name: tool, Arguments: arguments})
	must(t, err)
	return answer, resultOfAnswer(t, answer)
}

// resultOfAnswer decodes an answer: the fields of _meta, and the output, which is the text without the server's last line.
func resultOfAnswer(t *testing.T, answer *mcp.CallToolResult) (result reply.Result) {
	t.Helper()
	if answer.StructuredContent != nil {
		t.Errorf("the answer repeats itself: %v", answer.StructuredContent)
	}
	remarshal(t, answer.Meta[reply.MetaKey], &result)
	text := answer.Content[0].(*mcp.TextContent).Text
	if at := strings.LastIndex(text, "\n\n[reason: "); at >= 0 {
		text = text[:at]
	}
	result.Output = text
	return result
}

func textOf(answer *mcp.CallToolResult) string {
	if len(answer.Content) != 1 {
		return fmt.Sprintf("%d contents", len(answer.Content))
	}
	return answer.Content[0].(*mcp.TextContent).Text
}

type fields = map[string]any

// These are what fakes embed.
type (
	calls   = identity.Calls
	objects = client.Client
)

func remarshal(t *testing.T, from, into any) {
	t.Helper()
	raw, err := json.Marshal(from)
	must(t, err)
	must(t, json.Unmarshal(raw, into))
}

func (f *fixture) deleteAccount(name string) {
	f.t.Helper()
	must(f.t, f.clients.CoreV1().ServiceAccounts(f.namespace).Delete(context.Background(), name, metav1.DeleteOptions{}))
}

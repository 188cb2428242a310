package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/api/v1alpha1"
)

// apiServer is the API server of all tests in this package; nil when there is none.
var apiServer *rest.Config

// patience bounds every wait for something that should happen at once.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "the tests that need an API server are skipped: set KUBEBUILDER_ASSETS, e.g. to the output of 'make -s envtest-assets'")
		return m.Run()
	}
	env := &envtest.Environment{CRDDirectoryPaths: []string{"../../config/crd"}, ErrorIfCRDPathMissing: true}
	conf, err := env.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the API server:", err)
		return 1
	}
	defer func() { _ = env.Stop() }()
	conf.QPS = -1
	apiServer = conf
	return m.Run()
}

// world is a namespace with a hand in the operator's place: it ends calls as a test says.
type world struct {
	t         *testing.T
	namespace string
	admin     client.WithWatch
	clients   *kubernetes.Clientset
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if apiServer == nil {
		t.Skip("needs an API server: set KUBEBUILDER_ASSETS")
	}
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, v1alpha1.AddToScheme(scheme))
	admin, err := client.NewWithWatch(apiServer, client.Options{Scheme: scheme})
	must(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "mcp-"}}
	must(t, admin.Create(t.Context(), namespace))
	return &world{t: t, namespace: namespace.Name, admin: admin, clients: kubernetes.NewForConfigOrDie(apiServer)}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// operate gives each call that appears to decide, again with each change, until that writes its end.
func (w *world) operate(decide func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	watching, err := w.admin.Watch(ctx, &v1alpha1.ToolCallList{}, client.InNamespace(w.namespace))
	must(w.t, err)
	var done sync.WaitGroup
	done.Go(func() {
		for event := range watching.ResultChan() {
			call, ok := event.Object.(*v1alpha1.ToolCall)
			if !ok || event.Type == watch.Deleted || call.Status.Phase.Terminal() {
				continue
			}
			if status := decide(call); status != nil {
				call.Status = *status
				if err := w.admin.Status().Update(ctx, call); err != nil && ctx.Err() == nil {
					w.t.Errorf("end call %s: %v", call.Name, err)
				}
			}
		}
	})
	w.t.Cleanup(func() { cancel(); watching.Stop(); done.Wait() })
}

// ended is the status of a call that ended.
func ended(phase v1alpha1.Phase, reason string) *v1alpha1.ToolCallStatus {
	s := &v1alpha1.ToolCallStatus{Phase: phase, Reason: reason, Message: "message of " + reason, Output: "output of " + reason}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue, Reason: reason})
	return s
}

// echo is a call that wrote its own command line to stdout.
func echo(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
	s := ended(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted)
	if call.Spec.Shell != nil {
		s.Stdout = call.Spec.Shell.Command
	}
	s.ExitCode, s.DurationMilliseconds = ptr.To(int32(0)), ptr.To(int64(7))
	s.Streams = &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: int64(len(s.Stdout))}}
	s.Environment = &v1alpha1.ResolvedEnvironment{Name: "tools"}
	return s
}

// untilCancelled ends a call when that is asked for.
func untilCancelled(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
	if !call.Spec.Cancel {
		return nil
	}
	return ended(v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested)
}

// only gives the one call of the namespace when it is as wanted.
func (w *world) only(what string, wanted func(*v1alpha1.ToolCall) bool) *v1alpha1.ToolCall {
	w.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		list := &v1alpha1.ToolCallList{}
		must(w.t, w.admin.List(context.Background(), list, client.InNamespace(w.namespace)))
		if len(list.Items) > 1 {
			w.t.Fatalf("there are %d calls", len(list.Items))
		}
		if len(list.Items) == 1 && wanted(&list.Items[0]) {
			return &list.Items[0]
		}
	}
	w.t.Fatalf("no call that is %s", what)
	return nil
}

func (w *world) none() {
	w.t.Helper()
	list := &v1alpha1.ToolCallList{}
	must(w.t, w.admin.List(context.Background(), list, client.InNamespace(w.namespace)))
	if len(list.Items) > 0 {
		w.t.Errorf("there are %d calls, where none was to be", len(list.Items))
	}
}

// user makes a ServiceAccount that may do what the roles say, and gives a token of it.
func (w *world) user(name string, rules ...rbacv1.PolicyRule) (token string) {
	w.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	must(w.t, w.admin.Create(context.Background(), account))
	if len(rules) > 0 {
		must(w.t, w.admin.Create(context.Background(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Rules: rules}))
		must(w.t, w.admin.Create(context.Background(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: name}},
		}))
	}
	return w.token(name)
}

func (w *world) token(account string) string {
	w.t.Helper()
	request, err := w.clients.CoreV1().ServiceAccounts(w.namespace).CreateToken(context.Background(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(w.t, err)
	return request.Status.Token
}

// runsCalls is the right to create, follow and cancel calls.
func runsCalls() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolcalls"}, Verbs: []string{"create", "get", "list", "watch", "patch"}}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newTestServer makes a server; caller is nil over HTTP.
func newTestServer(t *testing.T, caller *Caller, maxCalls int) *Server {
	t.Helper()
	s := NewServer(Options{Caller: caller, MaxCalls: maxCalls, MaxCallsPerUser: maxCalls, Version: "test", Log: quiet()})
	t.Cleanup(s.Stop)
	return s
}

// local is the API server's administrator.
func (w *world) local() *Caller {
	w.t.Helper()
	caller, err := LocalCaller(apiServer, w.namespace)
	must(w.t, err)
	return caller
}

// connected gives a session of the SDK's own client with a server in memory.
func connected(t *testing.T, s *Server, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	served := make(chan error, 1)
	go func() { served <- s.Run(context.Background(), there) }()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options).Connect(t.Context(), here, nil)
	must(t, err)
	t.Cleanup(func() {
		_ = session.Close()
		if err := <-served; err != nil {
			t.Errorf("the server ended with: %v", err)
		}
	})
	return session
}

// use calls a tool and reads the structured part of the answer.
func use(t *testing.T, session *mcp.ClientSession, tool string, arguments any) (*mcp.CallToolResult, Result) {
	t.Helper()
	answer, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	must(t, err)
	raw, err := json.Marshal(answer.StructuredContent)
	must(t, err)
	var result Result
	must(t, json.Unmarshal(raw, &result))
	return answer, result
}

func textOf(answer *mcp.CallToolResult) string {
	if len(answer.Content) != 1 {
		return fmt.Sprintf("%d contents", len(answer.Content))
	}
	return answer.Content[0].(*mcp.TextContent).Text
}

type fields = map[string]any

func remarshal(t *testing.T, from, into any) {
	t.Helper()
	raw, err := json.Marshal(from)
	must(t, err)
	must(t, json.Unmarshal(raw, into))
}

package mcpserver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/output"
)

func TestTheAnswerHasTheOutcomeOfTheCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(echo)
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	answer, result := use(t, session, "run_command", fields{"command": "echo héllo", "timeout_seconds": 9})
	call := f.only("finished", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase.Terminal() })
	want := reply.Result{
		Call: call.Name, Phase: "Succeeded", Reason: "Completed", ExitCode: ptr.To(int32(0)), Output: "echo héllo", Environment: "tools",
	}
	if diff := cmp.Diff(want, result, cmpopts.IgnoreUnexported(reply.Result{})); diff != "" {
		t.Error(diff)
	}
	if want := "echo héllo\n\n[reason: Completed, exit_code: 0, call: " + call.Name + "]"; answer.IsError || textOf(answer) != want {
		t.Errorf("isError %t: %q", answer.IsError, textOf(answer))
	}
	if *call.Spec.TimeoutSeconds != 9 || !strings.HasPrefix(call.Name, namePrefix) {
		t.Errorf("call %s has %d s", call.Name, *call.Spec.TimeoutSeconds)
	}
}

// Every outcome but success is an error for the model, and not a protocol error.
func TestUnsuccessfulOutcomes(t *testing.T) {
	t.Parallel()
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseFailed, v1alpha1.PhaseDenied, v1alpha1.PhaseCancelled} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			refused := []v1alpha1.RefusedProgram{{Path: "/usr/bin/curl", Count: 2, Rule: "NotListed"}}
			f.operate(func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
				s := finishedStatus(phase, "Because")
				s.Refused = refused
				return s
			})
			answer, result := use(t, connected(t, newTestServer(t, f.local(), 8), nil), "run_code", fields{"language": "python", "code": "1"})
			if !answer.IsError || !strings.HasPrefix(textOf(answer), "output of Because\n\n[reason: Because, retry_safe: ") || result.RetrySafe == nil || result.Phase != string(phase) || result.Reason != "Because" {
				t.Errorf("isError %t, %+v", answer.IsError, result)
			}
			if diff := cmp.Diff([]string{"/usr/bin/curl"}, result.Refused); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The schemas of the arguments say what a tool requires, and take nothing unknown.
func TestToolsAreListedWithSchemas(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	listed, err := connected(t, newTestServer(t, f.local(), 8), nil).ListTools(t.Context(), nil)
	must(t, err)
	required := map[string][]any{
		"run_command": {"command"}, "run_program": {"program"}, "run_code": {"language", "code"}, "read_file": {"path"},
		"write_file": {"path"}, "edit_file": {"path"}, "search_files": {"pattern"}, "end_session": {"session"}, "get_call": {"call"},
		"cancel_call": {"call"}, "read_output": nil, "list_environments": nil, "list_files": nil, "start_session": nil,
	}
	if len(listed.Tools) != len(required) {
		t.Errorf("%d tools", len(listed.Tools))
	}
	for _, tool := range listed.Tools {
		input := schemaOf(t, tool.InputSchema)
		if diff := cmp.Diff(required[tool.Name], anyOf(input.Schema().Required)); diff != "" {
			t.Errorf("%s requires: %s", tool.Name, diff)
		}
		if input.Validate(fields{"unknown": 1}) == nil {
			t.Errorf("the schema of %s takes unknown arguments", tool.Name)
		}
	}
}

func schemaOf(t *testing.T, raw any) *jsonschema.Resolved {
	t.Helper()
	schema := &jsonschema.Schema{}
	remarshal(t, raw, schema)
	resolved, err := schema.Resolve(nil)
	must(t, err)
	return resolved
}

func anyOf(names []string) []any {
	var all []any
	for _, name := range names {
		all = append(all, name)
	}
	return all
}

func TestInvalidArgumentsCreateNoCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	answer, result := use(t, session, "run_command", fields{"command": ""})
	if !answer.IsError || result.Reason != v1alpha1.ReasonInvalidArguments || !ptr.Deref(result.RetrySafe, false) || !strings.HasPrefix(textOf(answer), "command: is required") {
		t.Errorf("%+v", result)
	}
	answer, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "list_environments", Arguments: fields{"all": true}})
	must(t, err)
	if !answer.IsError || textOf(answer) != "all: is unknown: use no arguments\n\n[reason: InvalidArguments, retry_safe: true]" {
		t.Errorf("%+v", answer)
	}
	f.none()
}

// The answer has the reason why the API server rejected a call, in the words of this server.
func TestTheAPIServerRejectsACall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	answer, result := use(t, session, "run_program", fields{"program": "x", "collect": []string{""}})
	if !answer.IsError || result.Reason != "Invalid" || !ptr.Deref(result.RetrySafe, false) || !strings.Contains(result.Output, " collect[0]: ") || strings.Contains(result.Output, "spec.") {
		t.Errorf("%+v", result)
	}
	if len(result.Output) > reply.MaxMessage+100 {
		t.Errorf("the message has %d bytes", len(result.Output))
	}
	f.none()
}

// One in the background is waited for until it runs.
func TestACancelledRequestCancelsItsCall(t *testing.T) {
	t.Parallel()
	for _, arguments := range []fields{{"command": "sleep 1000"}, {"command": "serve", "session": "mine", "background": true}} {
		f := newFixture(t)
		f.operate(untilCancelled)
		session := connected(t, newTestServer(t, f.local(), 8), nil)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "run_command", Arguments: arguments})
			failed <- err
		}()
		f.only("created", func(*v1alpha1.ToolCall) bool { return true })
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("the client got %v", err)
		}
		f.only("cancelled", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase == v1alpha1.PhaseCancelled })
	}
}

// A client that disconnects, for example by closing standard input, leaves nothing running.
func TestALostConnectionCancelsItsCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(untilCancelled)
	s := newTestServer(t, f.local(), 8)
	here, there := mcp.NewInMemoryTransports()
	served := make(chan error, 1)
	go func() { served <- s.Run(context.Background(), there) }()
	connection, err := here.Connect(t.Context())
	must(t, err)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &once{connection}, nil)
	must(t, err)
	go func() {
		_, _ = session.CallTool(context.Background(), &mcp.CallToolParams{Name: "run_command", Arguments: fields{"command": "sleep 1000"}})
	}()
	f.only("created", func(*v1alpha1.ToolCall) bool { return true })
	must(t, connection.Close())
	select {
	case <-served:
	case <-time.After(testTimeout):
		t.Fatal("the server still serves")
	}
	f.only("cancelled before the server ended", func(c *v1alpha1.ToolCall) bool { return c.Spec.Cancel })
}

// once is a transport with an open connection.
type once struct{ connection mcp.Connection }

func (o *once) Connect(context.Context) (mcp.Connection, error) { return o.connection, nil }

// A server that stops cancels running calls, and answers their requests.
func TestStoppingAnswersWithTheCancelledCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(untilCancelled)
	s := newTestServer(t, f.local(), 8)
	session := connected(t, s, nil)
	go func() {
		f.only("created", func(*v1alpha1.ToolCall) bool { return true })
		s.Stop()
	}()
	answer, result := use(t, session, "run_command", fields{"command": "sleep 1000"})
	if !answer.IsError || result.Phase != string(v1alpha1.PhaseCancelled) || result.Call == "" {
		t.Errorf("%+v", result)
	}
	must(t, s.Wait(testTimeout))
}

func TestADeletedCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	go func() {
		call := f.only("created", func(*v1alpha1.ToolCall) bool { return true })
		if err := f.admin.Delete(context.Background(), call); err != nil {
			t.Error(err)
		}
	}()
	answer, result := use(t, session, "run_command", fields{"command": "x"})
	if !answer.IsError || result.Reason != reply.ReasonDeleted || result.Call == "" || ptr.Deref(result.RetrySafe, true) {
		t.Errorf("%+v", result)
	}
}

func TestTooManyCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(untilCancelled)
	s := newTestServer(t, f.local(), 1)
	session := connected(t, s, nil)
	var running sync.WaitGroup
	running.Go(func() {
		_, _ = session.CallTool(context.Background(), &mcp.CallToolParams{Name: "run_command", Arguments: fields{"command": "sleep 1000"}})
	})
	f.only("created", func(*v1alpha1.ToolCall) bool { return true })
	answer, result := use(t, session, "run_command", fields{"command": "one too many"})
	if !answer.IsError || result.Reason != reply.ReasonTooManyCalls || !ptr.Deref(result.RetrySafe, false) {
		t.Errorf("%+v", result)
	}
	s.Stop()
	running.Wait()
}

// A client that requests progress receives the output.
func TestProgressReachesTheClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(echo)
	var mu sync.Mutex
	var got []string
	session := connected(t, newTestServer(t, f.local(), 8), &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, req.Params.ProgressToken.(string)+" "+req.Params.Message)
		},
	})
	params := &mcp.CallToolParams{Name: "run_command", Arguments: fields{"command": "hello"}}
	params.SetProgressToken("mine")
	_, err := session.CallTool(t.Context(), params)
	must(t, err)
	// The client handles notifications concurrently with the answer.
	eventually(t, "progress", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(got, "mine hello")
	})
}

// What a command writes reaches the client while it runs, and the answer has no more than the status says.
func TestProgressIsLive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	seen := make(chan struct{})
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if call.Status.Phase == "" {
			_, _ = outputs.Add(call, output.Stdout).Write([]byte("live"))
			outputs.Add(call, output.Stderr)
			return &v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning}
		}
		<-seen
		s := echo(call)
		s.Stdout, s.Streams.Stdout = "l[...]", v1alpha1.StreamStatus{Bytes: 1 << 30, Truncated: true}
		return s
	})
	var once sync.Once
	session := connected(t, newTestServer(t, f.local(), 8), &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			if req.Params.Message == "live" {
				once.Do(func() { close(seen) })
			}
		},
	})
	params := &mcp.CallToolParams{Name: "run_command", Arguments: fields{"command": "hello"}}
	params.SetProgressToken("mine")
	answer, err := session.CallTool(t.Context(), params)
	must(t, err)
	if answer.IsError {
		t.Errorf("got %s", textOf(answer))
	}
}

func TestEnvironmentsAreListed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	list := func() (string, reply.Result) {
		answer, err := session.CallTool(t.Context(), &mcp.CallToolParams{Meta: mcp.Meta{reply.MetaKey: true}, Name: "list_environments"})
		must(t, err)
		found := reply.Result{}
		remarshal(t, answer.Meta[reply.MetaKey], &found)
		return textOf(answer), found
	}
	if text, found := list(); !strings.Contains(text, "no environments in namespace "+f.namespace) || len(found.Environments) != 0 {
		t.Errorf("%s %+v", text, found)
	}
	must(t, f.admin.Create(t.Context(), &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "tools", Annotations: map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"}},
		Spec: v1alpha1.ExecutionEnvironmentSpec{
			Image: "example.com/tools:1", WorkingDir: "/workspace", Interpreters: map[string]v1alpha1.CommandPrefix{"lua": {"lua", "-e"}},
			Volumes:      []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}},
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		},
	}))
	text, found := list()
	want := []reply.Environment{{
		Name: "tools", Default: true, Image: "example.com/tools:1", WorkingDir: "/workspace", Languages: []string{"lua"}, Keeps: []string{"/data"}, Message: "the operator has not checked it yet",
		// The requester can't know what the cluster's default policy allows.
	}}
	if diff := cmp.Diff(want, found.Environments); diff != "" {
		t.Error(diff)
	}
	if want := "tools: image example.com/tools:1, starts in /workspace, additional languages lua, files below /data last, the default, not ready: the operator has not checked it yet\n" +
		"  it names no policy, so the cluster's default policy applies, or the built-in defaults if there is none: a denial says what would pass\n"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
}

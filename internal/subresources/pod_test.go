package subresources_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/subresources"
	"toolcall.dev/operator/internal/supervisor"
)

// pod is a session that is ready, and its real runner, in this process.
type pod struct {
	*space
	session *v1alpha1.ToolSession
	policy  *v1alpha1.ExecutionPolicy
	runner  *dispatch.Runner
	// dir is the only directory that the policy allows.
	dir string
	// owner created the session.
	owner *rest.Config
	// started counts the commands that the runner has begun.
	started atomic.Int32

	mu   sync.Mutex
	conn net.Conn
}

// newPod makes a session of the user "owner". change changes its policy.
func newPod(t *testing.T, change ...func(*v1alpha1.ExecutionPolicySpec)) *pod {
	t.Helper()
	s := newSpace(t)
	p := &pod{space: s, dir: t.TempDir(), owner: s.as("owner")}
	p.policy = &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy-" + s.namespace}}
	p.policy.Spec.Access = v1alpha1.AccessOpen
	p.policy.Spec.Files = &v1alpha1.FilesPolicy{ReadPaths: []string{p.dir}, WritePaths: []string{p.dir}, DeniedPaths: []string{"*.key"}}
	for _, c := range change {
		c(&p.policy.Spec)
	}
	env := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "env"}}
	env.Spec.Image, env.Spec.PolicyRef = "image", &v1alpha1.PolicyReference{Name: p.policy.Name}
	env.Spec.WorkingDir, env.Spec.AllowedPaths = p.dir, []string{p.dir}
	for _, object := range []client.Object{p.policy, env} {
		if err := s.admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	s.bind("owner", "toolcall-user")
	p.session = &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "session"}}
	p.session.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "env"}
	c := s.clientOf("owner")
	eventually(t, func() error { return c.Create(t.Context(), p.session) })
	p.startRunner()
	p.setReady(env)
	return p
}

// setReady writes the status that the operator writes when the pod is there.
func (p *pod) setReady(env *v1alpha1.ExecutionEnvironment) {
	p.t.Helper()
	bound := &v1alpha1.RunnerBinding{PodUID: "pod-uid", KeyHash: p.runner.KeyHash()}
	context := []string{"session", p.namespace, p.session.Name, string(p.session.UID), bound.PodUID, bound.KeyHash}
	var err error
	if bound.Decision, err = jobspec.Seal(p.identity, &decide.Origin{Context: decide.Context{Named: env}}, context...); err != nil {
		p.t.Fatal(err)
	}
	p.setSession(v1alpha1.ToolSessionStatus{Phase: v1alpha1.SessionReady, Pod: "pod", Incarnation: 1, Runner: bound})
}

func (p *pod) setSession(status v1alpha1.ToolSessionStatus) {
	p.t.Helper()
	before := p.session.DeepCopy()
	p.session.Status = status
	if err := p.admin.Status().Patch(p.t.Context(), p.session, client.MergeFrom(before)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pod) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn = conn
	return conn, err
}

// cut ends the runner's connection.
func (p *pod) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn.Close()
}

// listen is the operator's listener for runners.
func (p *pod) listen() string {
	p.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	server := &dispatch.Server{Hub: p.hub, Identity: p.identity, Log: logr.Discard()}
	go func() { over <- server.Serve(ctx, listener) }()
	p.t.Cleanup(func() { cancel(); <-over })
	return listener.Addr().String()
}

// startRunner starts a real runner, and begins the session in it.
func (p *pod) startRunner() {
	p.t.Helper()
	job, uid := "job-"+p.namespace, "uid-"+p.namespace
	vars := map[string]string{
		wire.EnvEndpoints: p.listen(), wire.EnvCA: p.identity.CA(), wire.EnvToken: p.identity.Token(p.namespace, job, uid),
		wire.EnvNamespace: p.namespace, wire.EnvPool: "env", wire.EnvJob: job, wire.EnvJobUID: uid, wire.EnvPod: "pod", wire.EnvPodUID: "pod-uid",
		wire.EnvNode: "node",
	}
	config, err := dial.FromEnv(func(name string) string { return vars[name] })
	if err != nil {
		p.t.Fatal(err)
	}
	config.DialContext = p.dial
	run := func(ctx context.Context, c runner.Command) result.Outcome {
		return runApart(ctx, c, func() { p.started.Add(1) })
	}
	executor := &supervisor.Executor{WorkingDir: "/", Environ: os.Environ(), Inputs: supervisor.NewInputs(), Run: run}
	s := &supervisor.Supervisor{
		Dial: func(ctx context.Context, serving *wire.Serving) (supervisor.Conn, error) {
			return config.Dial(ctx, serving)
		},
		Begin: func(*wire.Begin) supervisor.ExecuteFunc { return executor.Execute },
		Files: executor,
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx, ctx) }()
	p.t.Cleanup(func() { cancel(); <-over })
	eventually(p.t, func() error {
		if p.runner = p.hub.Runner(uid); p.runner == nil {
			return errors.New("the runner isn't connected")
		}
		return nil
	})
	if err := p.runner.Begin(&wire.Begin{Owner: host.OwnerOf(p.session, 1), MaxCalls: 100, MaxConcurrentCalls: 4}); err != nil {
		p.t.Fatal(err)
	}
}

// fileURL is where a file of the session is.
func (p *pod) fileURL(path, more string) string {
	return fmt.Sprintf("/apis/%s/namespaces/%s/toolsessions/%s/proxy/files?path=%s%s", subresources.GroupVersion, p.namespace, p.session.Name, url.QueryEscape(path), more)
}

// send sends a request with a body through the API server.
func (s *space) send(config *rest.Config, method, path string, content io.Reader, headers ...string) *http.Response {
	s.t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, strings.TrimSuffix(config.Host, "/")+path, content)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { response.Body.Close() })
	return response
}

// put writes a file as the owner.
func (p *pod) put(path, content string, headers ...string) *http.Response {
	p.t.Helper()
	return p.send(p.owner, http.MethodPut, p.fileURL(path, ""), strings.NewReader(content), headers...)
}

// onDisk is a file's content.
func (p *pod) onDisk(name string) string {
	p.t.Helper()
	raw, err := os.ReadFile(p.dir + "/" + name)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(raw)
}

// names are those in the session's directory.
func (p *pod) names() string {
	p.t.Helper()
	list, err := os.ReadDir(p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	var names []string
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return strings.Join(names, " ")
}

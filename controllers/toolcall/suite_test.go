package toolcall

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

// start is when the calls of these tests were created.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type change func(*observation)

// observed is a new call as a pass sees it, one second after its creation.
func observed(changes ...change) *observation {
	o := &observation{
		name: types.NamespacedName{Namespace: "ns", Name: "call"},
		call: &v1alpha1.ToolCall{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "call", UID: "call-uid", Generation: 1, CreationTimestamp: metav1.NewTime(start)},
			Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "make"}, RequestedBy: &v1alpha1.Requester{Username: "alice"}},
		},
		times: times{now: start.Add(time.Second), created: start, heard: start.Add(-time.Hour)},
	}
	for _, c := range changes {
		c(o)
	}
	return o
}

// newDecision is what was decided half a second after the call's creation.
func newDecision() *decide.Decision {
	return &decide.Decision{
		Environment: "env", ArgvPrefix: []string{"bash", "-c"}, Bounds: spec.Bounds{TimeoutMilliseconds: 10_000, MaxBytesPerStream: 100}, StartTimeoutSeconds: 60,
		CreatedMicroseconds: start.UnixMicro(), AcceptedMicroseconds: start.Add(500 * time.Millisecond).UnixMicro(),
		Plan: envresolve.Plan{Trusted: true, Layers: []envresolve.Layer{
			{Source: envresolve.SourceDefault, Vars: []envresolve.Var{{Name: "D", Value: "secret-literal"}}},
		}},
		In: &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "env", UID: "env-uid"}, Spec: v1alpha1.ExecutionEnvironmentSpec{Image: "image:1"}},
	}
}

func decided(o *observation) { o.decision = newDecision() }

// withJob gives the call its Job, and what was decided.
func withJob(o *observation) {
	decided(o)
	o.job = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: jobspec.Name(o.call), UID: "job-uid", CreationTimestamp: metav1.NewTime(start)}}
}

func suspended(o *observation) {
	withJob(o)
	o.job.Spec.Suspend = ptr.To(true)
}

// bound records a runner.
func bound(o *observation) {
	decided(o)
	s := o.running(&v1alpha1.RunnerBinding{PodUID: "pod-uid", KeyHash: "key", Decision: "sealed"}, wire.Hello{Pod: "pod", Node: "node"}, v1alpha1.PathCold)
	s.Job = jobspec.Name(o.call)
	o.call.Status = *s
}

// said is what the call's status says by now.
func said(make func(*observation) *v1alpha1.ToolCallStatus) change {
	return func(o *observation) { o.call.Status = *make(o) }
}

func later(d time.Duration) change { return func(o *observation) { o.now = o.now.Add(d) } }

// justHeard: runners can reach the operator since this moment, which is also when it began to look after calls.
func justHeard(o *observation) { o.heard = o.now }

func cancelled(o *observation) { o.call.Spec.Cancel, o.call.Generation = true, 2 }

func edited(o *observation) { o.call.Generation = 2 }

// outcome is that of a command which ended well.
func outcome(changes ...func(*result.Outcome)) *wire.Result {
	r := &wire.Result{CallUID: "call-uid", Outcome: result.Outcome{
		Reason: result.Completed, Started: true, ExitCode: result.Exit(0), DurationMS: 1500,
		StartTime: start.Add(time.Second), CompletionTime: start.Add(2500 * time.Millisecond),
		Stdout: result.Stream{Head: []byte("out\n"), Bytes: 4}, Stderr: result.Stream{Head: []byte("err\n"), Bytes: 4},
	}}
	for _, c := range changes {
		c(&r.Outcome)
	}
	return r
}

// operator is a server on loopback that real runners connect to.
type operator struct {
	hub      *dispatch.Hub
	identity *dispatch.Identity
	address  string
	events   chan *dispatch.Runner
}

func newIdentity(t *testing.T) *dispatch.Identity {
	t.Helper()
	identity, err := dispatch.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

func startOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{identity: newIdentity(t), events: make(chan *dispatch.Runner, 64)}
	o.hub = dispatch.NewHub(func(s *dispatch.Runner, _ dispatch.News) { o.events <- s })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		server := &dispatch.Server{Hub: o.hub, Identity: o.identity, Log: logr.Discard()}
		if err := server.Serve(ctx, listener); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); serving.Wait() })
	return o
}

// connect is a runner of a Job, with the call that it has if any.
func (o *operator) connect(t *testing.T, job, callUID string) (*dispatch.Runner, *dial.Conn) {
	t.Helper()
	env := map[string]string{
		wire.EnvEndpoints: o.address, wire.EnvCA: o.identity.CA(),
		wire.EnvToken: o.identity.Token("ns", job, job+"-uid"), wire.EnvNamespace: "ns",
		wire.EnvJob: job, wire.EnvJobUID: job + "-uid", wire.EnvPod: job + "-pod", wire.EnvPodUID: job + "-pod-uid",
	}
	config, err := dial.FromEnv(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	var serving *wire.Serving
	if callUID != "" {
		serving = &wire.Serving{Owner: wire.Owner{Kind: wire.KindCall, UID: callUID, Name: "call"}, Taken: 1, Held: 1}
	}
	conn, err := config.Dial(context.Background(), serving)
	if err == nil && serving != nil {
		err = conn.Send(&wire.Message{Held: &wire.Held{UID: callUID, Name: "call", State: wire.Running}})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	select {
	case s := <-o.events:
		return s, conn
	case <-time.After(30 * time.Second):
		t.Fatal("the operator has not heard of the runner")
		return nil, nil
	}
}

// jobOf is a Job whose pod has ended, or not.
func endedJob(job *batchv1.Job) *batchv1.Job {
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue})
	return job
}

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/supervisor"
	"toolcall.dev/operator/test/internal/follow"
)

// nodeName is where every pod is.
const nodeName = "node-1"

// node does what a Job controller, a kubelet and the pods would do, for the Jobs of one namespace. The runner's side
// of the protocol is the real one; only the command is left out.
type node struct {
	client client.WithWatch
	// pods acts as the Job controller.
	pods      client.Client
	namespace string

	mu sync.Mutex
	// tokens are those of the Jobs' Secrets, and here is closed when one has come.
	tokens map[string]string
	here   map[string]chan struct{}
	// jobs end the runner of a Job that is deleted.
	jobs    map[types.UID]context.CancelFunc
	running sync.WaitGroup
	failed  error
}

func newNode(s *server, namespace string) *node {
	return &node{
		client: s.client, pods: s.jobs, namespace: namespace, tokens: map[string]string{},
		here: map[string]chan struct{}{}, jobs: map[types.UID]context.CancelFunc{},
	}
}

// start serves until stop is called, which ends all runners.
func (n *node) start(ctx context.Context) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var followers []*follow.Follower
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &batchv1.JobList{}} {
		f, err := follow.Start(ctx, n.client, list, n.namespace, func(e watch.Event) { n.take(ctx, e) })
		if err != nil {
			cancel()
			return nil, err
		}
		followers = append(followers, f)
		n.running.Go(func() {
			<-f.Done()
			n.note(ctx, f.Err())
		})
	}
	return func() error {
		cancel()
		for _, f := range followers {
			f.Stop()
		}
		n.running.Wait()
		return n.failure()
	}, nil
}

func (n *node) failure() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

func (n *node) take(ctx context.Context, event watch.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch o := event.Object.(type) {
	case *corev1.Secret:
		if event.Type == watch.Added && o.Data["token"] != nil {
			n.tokens[o.Name] = string(o.Data["token"])
			close(n.waitFor(o.Name))
		}
	case *batchv1.Job:
		if event.Type == watch.Added && o.Status.CompletionTime == nil && n.jobs[o.UID] == nil {
			ctx, cancel := context.WithCancel(ctx)
			n.jobs[o.UID] = cancel
			n.running.Go(func() {
				defer cancel()
				n.note(ctx, n.run(ctx, o))
			})
		}
		if stop := n.jobs[o.UID]; stop != nil && (event.Type == watch.Deleted || o.DeletionTimestamp != nil) {
			stop()
		}
	}
}

// waitFor needs the lock.
func (n *node) waitFor(secret string) chan struct{} {
	if n.here[secret] == nil {
		n.here[secret] = make(chan struct{})
	}
	return n.here[secret]
}

// note keeps the first failure that isn't the end of its Job or of the node.
func (n *node) note(ctx context.Context, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil && ctx.Err() == nil && n.failed == nil {
		n.failed = err
	}
}

// token waits for a Job's Secret, as the kubelet does.
func (n *node) token(ctx context.Context, name string) (string, error) {
	n.mu.Lock()
	here := n.waitFor(name)
	n.mu.Unlock()
	select {
	case <-here:
		n.mu.Lock()
		defer n.mu.Unlock()
		token := n.tokens[name]
		delete(n.here, name)
		delete(n.tokens, name)
		return token, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// run is the life of one Job.
func (n *node) run(ctx context.Context, job *batchv1.Job) error {
	pod := podOf(job)
	if err := n.pods.Create(ctx, pod); err != nil {
		return fmt.Errorf("create the pod of Job %s: %w", job.Name, err)
	}
	token, err := n.token(ctx, job.Name)
	if err != nil {
		return err
	}
	if err := serve(ctx, pod, token); err != nil {
		return fmt.Errorf("runner of pod %s: %w", pod.Name, err)
	}
	if err := n.ended(ctx, pod); err != nil {
		return err
	}
	return n.complete(ctx, job)
}

func podOf(job *batchv1.Job) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name + "-" + rand.String(5),
			Labels: job.Spec.Template.Labels, Annotations: job.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID,
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: *job.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.NodeName = nodeName
	return pod
}

// ended writes the one status that a pod gets here: a runner is with the operator before its kubelet has seen the
// container run, and most calls have ended by then. Nobody else writes it, so that it is sent whole, which costs the API
// server less than a patch.
func (n *node) ended(ctx context.Context, pod *corev1.Pod) error {
	now := metav1.Now()
	pod.Status.Phase, pod.Status.StartTime = corev1.PodSucceeded, &now
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: now},
	}
	if err := n.client.Status().Update(ctx, pod); err != nil {
		return fmt.Errorf("write the status of pod %s: %w", pod.Name, err)
	}
	return nil
}

// complete ends the Job. The operator may have changed it since it was seen; its status is the node's alone.
func (n *node) complete(ctx context.Context, job *batchv1.Job) error {
	before := job.DeepCopy()
	now := metav1.Now()
	job.Status.StartTime, job.Status.CompletionTime = ptr.To(job.CreationTimestamp), &now
	job.Status.Succeeded, job.Status.Ready, job.Status.Terminating = 1, ptr.To(int32(0)), ptr.To(int32(0))
	job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	if err := n.client.Status().Patch(ctx, job, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of Job %s: %w", job.Name, err)
	}
	return nil
}

// serve is the pod's runner: it connects, takes a call, and hands its result over until that is acknowledged.
func serve(ctx context.Context, pod *corev1.Pod, token string) error {
	env := containerEnv(pod, token)
	conf, err := dial.FromEnv(func(name string) string { return env[name] })
	if err != nil {
		return err
	}
	s := &supervisor.Supervisor{
		Dial: func(ctx context.Context, call dial.Call) (supervisor.Conn, error) {
			conn, err := conf.Dial(ctx, call)
			switch {
			case err == nil:
				return conn, nil
			case ctx.Err() != nil:
				// The process would be gone now.
				return nil, errors.Join(supervisor.ErrRefused, ctx.Err())
			}
			return nil, err
		},
		Execute: execute,
		Leave:   func(*wire.Result) {},
	}
	return s.Run(ctx, ctx)
}

// containerEnv resolves what the kubelet would.
func containerEnv(pod *corev1.Pod, token string) map[string]string {
	env := map[string]string{}
	for _, v := range pod.Spec.Containers[0].Env {
		switch {
		case v.ValueFrom == nil:
			env[v.Name] = v.Value
		case v.ValueFrom.SecretKeyRef != nil:
			env[v.Name] = token
		case v.ValueFrom.FieldRef != nil:
			env[v.Name] = field(pod, v.ValueFrom.FieldRef.FieldPath)
		}
	}
	return env
}

func field(pod *corev1.Pod, path string) string {
	if label, ok := strings.CutPrefix(path, "metadata.labels['"); ok {
		return pod.Labels[strings.TrimSuffix(label, "']")]
	}
	return map[string]string{
		"metadata.namespace": pod.Namespace, "metadata.name": pod.Name,
		"metadata.uid": string(pod.UID), "spec.nodeName": pod.Spec.NodeName,
	}[path]
}

// execute reports at once what a small command would have come to.
func execute(_ context.Context, a *wire.Assignment) *wire.Result {
	now := time.Now()
	return &wire.Result{
		CallUID:     a.CallUID,
		Environment: wire.Environment{WorkingDir: "/workspace"},
		Outcome: result.Outcome{
			Reason: result.Completed, Started: true, ExitCode: result.Exit(0),
			StartTime: now, CompletionTime: now, DurationMS: 1, WorkingDir: "/workspace",
			Stdout: result.Stream{Head: []byte("hi\n"), Bytes: 3, SHA256: "98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4"},
			Stderr: result.Stream{SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		},
	}
}

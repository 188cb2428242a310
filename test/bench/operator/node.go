package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
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
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/internal/follow"
)

// node does what a Job controller, a kubelet and the pods would do, for the Jobs of one namespace. The runner's side
// of the protocol is the real one; only the command is left out.
type node struct {
	client    client.Client
	cancel    context.CancelFunc
	followers []*follow.Follower
	// running are the Jobs' lives, and keep the first failure that isn't the end of its Job or of the node.
	running errgroup.Group

	mu sync.Mutex
	// tokens are where those of the Jobs' Secrets arrive.
	tokens map[string]chan string
	// jobs end the runner of a Job that is deleted.
	jobs map[types.UID]context.CancelFunc
}

// startNode serves the Jobs of a namespace until stop is called.
func startNode(ctx context.Context, c client.WithWatch, namespace string) (*node, error) {
	ctx, cancel := context.WithCancel(ctx)
	n := &node{client: c, cancel: cancel, tokens: map[string]chan string{}, jobs: map[types.UID]context.CancelFunc{}}
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &batchv1.JobList{}} {
		f, err := follow.Start(ctx, c, list, namespace, func(e watch.Event) { n.take(ctx, e) })
		if err != nil {
			return nil, errors.Join(err, n.stop())
		}
		n.followers = append(n.followers, f)
	}
	return n, nil
}

// stop ends all runners, and says what failed.
func (n *node) stop() error {
	n.cancel()
	var err error
	for _, f := range n.followers {
		err = errors.Join(err, f.Stop())
	}
	return errors.Join(err, n.running.Wait())
}

func (n *node) take(ctx context.Context, event watch.Event) {
	switch o := event.Object.(type) {
	case *corev1.Secret:
		if event.Type == watch.Added && o.Data["token"] != nil {
			n.token(o.Name) <- string(o.Data["token"])
		}
	case *batchv1.Job:
		n.mu.Lock()
		defer n.mu.Unlock()
		if event.Type == watch.Added && o.Status.CompletionTime == nil && n.jobs[o.UID] == nil {
			ctx, cancel := context.WithCancel(ctx)
			n.jobs[o.UID] = cancel
			n.running.Go(func() error {
				defer cancel()
				if err := n.run(ctx, o); ctx.Err() == nil {
					return err
				}
				return nil
			})
		}
		if stop := n.jobs[o.UID]; stop != nil && (event.Type == watch.Deleted || o.DeletionTimestamp != nil) {
			stop()
		}
	}
}

// token is where that of a Job's Secret arrives. The kubelet waits for the Secret, too.
func (n *node) token(secret string) chan string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tokens[secret] == nil {
		n.tokens[secret] = make(chan string, 1)
	}
	return n.tokens[secret]
}

// run is the life of one Job.
func (n *node) run(ctx context.Context, job *batchv1.Job) error {
	pod := podOf(job)
	if err := cluster.Create(ctx, n.client, pod); err != nil {
		return err
	}
	select {
	case token := <-n.token(job.Name):
		if err := serve(ctx, pod, token); err != nil {
			return fmt.Errorf("runner of pod %s: %w", pod.Name, err)
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := endPod(ctx, n.client, pod); err != nil {
		return err
	}
	return completeJob(ctx, n.client, job)
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
	pod.Spec.NodeName = cluster.NodeName
	return pod
}

// endPod writes the one status that a pod gets here: a runner is with the operator before its kubelet has seen the
// container run, and most calls have ended by then. Nobody else writes it, so that it is sent whole, which costs the API
// server less than a patch.
func endPod(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	now := metav1.Now()
	pod.Status.Phase, pod.Status.StartTime = corev1.PodSucceeded, &now
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: now},
	}
	if err := c.Status().Update(ctx, pod); err != nil {
		return fmt.Errorf("write the status of pod %s: %w", pod.Name, err)
	}
	return nil
}

// completeJob ends the Job. The operator may have changed it since it was seen; its status is the node's alone.
func completeJob(ctx context.Context, c client.Client, job *batchv1.Job) error {
	before := job.DeepCopy()
	now := metav1.Now()
	job.Status.StartTime, job.Status.CompletionTime = ptr.To(job.CreationTimestamp), &now
	job.Status.Succeeded, job.Status.Ready, job.Status.Terminating = 1, ptr.To(int32(0)), ptr.To(int32(0))
	job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	if err := c.Status().Patch(ctx, job, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
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
		Dial: func(ctx context.Context, serving *wire.Serving) (supervisor.Conn, error) {
			conn, err := conf.Dial(ctx, serving)
			switch {
			case err == nil:
				return conn, nil
			case ctx.Err() != nil:
				// The process would be gone now.
				return nil, errors.Join(supervisor.ErrRefused, ctx.Err())
			}
			return nil, err
		},
		Begin: func(*wire.Begin) supervisor.ExecuteFunc {
			return execute
		},
		SaveCopy: func(*wire.Result) {},
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

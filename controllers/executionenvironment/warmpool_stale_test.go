package executionenvironment_test

import (
	"context"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/testing/fixture"
)

// lagging shows the Jobs as they were when it was made.
type lagging struct {
	client.Client
	jobs []batchv1.Job
}

func (l *lagging) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	jobs, ok := list.(*batchv1.JobList)
	if !ok {
		return l.Client.List(ctx, list, opts...)
	}
	for i := range l.jobs {
		jobs.Items = append(jobs.Items, *l.jobs[i].DeepCopy())
	}
	return nil
}

func TestAPodThatServedItsCallIsNoFailureOfThePool(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	runners := w.WarmUp(env)
	// A pass over the pool that began now sees the Job as the pool's own, however long it takes.
	stale := &lagging{Client: w.Client, jobs: w.Waiting(env)}
	call := w.Call("c")
	w.Reconcile(call)
	status := w.Get(call).Status
	r := runners[status.Job]
	r.Receive()
	r.Report(w, call.UID, fixture.Completed)
	w.Reconcile(call)
	r.Receive()
	r.Conn.Close()
	pod := &corev1.Pod{}
	key := types.NamespacedName{Namespace: w.Namespace, Name: status.Pod}
	if err := w.Client.Get(context.Background(), key, pod); err != nil {
		t.Fatal(err)
	}
	w.PodStatus(pod, func(s *corev1.PodStatus) { s.Phase = corev1.PodFailed })
	fixture.Eventually(t, func() bool {
		return w.Hub.Runner(string(stale.jobs[0].UID)) == nil && w.Client.Get(context.Background(), key, pod) == nil && pod.Status.Phase == corev1.PodFailed
	})

	current := w.Pools.Objects.Reader
	w.Pools.Objects.Reader = stale
	w.Fill(env)
	w.Pools.Objects.Reader = current
	if !w.HasNamedJob(status.Job) {
		t.Error("the pool deleted a Job that is a call's by now")
	}
	if problem := w.Problem(env); problem != "" {
		t.Errorf("the pool counts it as a failure: %s", problem)
	}
	fixture.Eventually(t, func() bool { w.Fill(env); return len(w.Waiting(env)) == 1 })
}

func TestAWaitingPodIsLookedUpOnce(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(3))
	w.WarmUp(env)
	counted := &counting{Client: w.Client}
	w.Pools.Objects.Reader = counted
	w.Fill(env)
	if counted.calls != 0 {
		t.Errorf("with a full pool it was asked %d times which call has a pod", counted.calls)
	}
}

// counting counts the looks for calls.
type counting struct {
	client.Client
	calls int
}

func (c *counting) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := client.ListOptions{}
	options.ApplyOptions(opts)
	_, calls := list.(*v1alpha1.ToolCallList)
	if calls && options.FieldSelector != nil && strings.Contains(options.FieldSelector.String(), apicache.IndexCallJob) {
		c.calls++
	}
	return c.Client.List(ctx, list, opts...)
}

// changing stores Jobs with another image, as an API server that leaves a field out stores another pod.
type changing struct {
	client.Client
	created int
}

func (c *changing) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if job, ok := o.(*batchv1.Job); ok {
		c.created++
		job.Spec.Template.Spec.Containers[0].Image = "changed"
	}
	return c.Client.Create(ctx, o, opts...)
}

// A Job that isn't as it was made counts for nothing. The pool deletes it, and backs off.
func TestAPoolWhoseJobsAreChangedDoesNotGrow(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(2))
	api := &changing{Client: w.Pools.Client}
	w.Pools.Client = api
	for range 5 {
		w.Fill(env)
	}
	if api.created != 1 || len(w.Waiting(env)) != 0 {
		t.Errorf("%d Jobs were created, %d wait", api.created, len(w.Waiting(env)))
	}
	if problem := w.Problem(env); !strings.Contains(problem, "image volume") {
		t.Errorf("the environment says %q", problem)
	}
}

package e2e

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// The tests of this file stop the operator: they are not parallel.

// podCount counts every pod that a namespace ever has, by the Job that it was made for.
type podCount struct {
	watch watch.Interface
	done  chan map[string]map[types.UID]bool
}

func (sp *space) countPods(t *testing.T) *podCount {
	t.Helper()
	// It may go on when the test is over, and its subtests with it.
	w, err := sp.client.Watch(context.WithoutCancel(t.Context()), &corev1.PodList{}, client.InNamespace(sp.namespace))
	must(t, err)
	c := &podCount{watch: w, done: make(chan map[string]map[types.UID]bool, 1)}
	go func() {
		seen := map[string]map[types.UID]bool{}
		for event := range w.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				job := pod.Labels[batchv1.JobNameLabel]
				if seen[job] == nil {
					seen[job] = map[types.UID]bool{}
				}
				seen[job][pod.UID] = true
			}
		}
		c.done <- seen
	}()
	return c
}

// perJob ends the counting.
func (c *podCount) perJob() map[string]int {
	c.watch.Stop()
	counts := map[string]int{}
	for job, pods := range <-c.done {
		counts[job] = len(pods)
	}
	return counts
}

// Killed in the middle of everything, the operator comes back, and every call has its result, having run once.
func TestOperatorKilledWhileCallsRun(t *testing.T) {
	sp := newSpace(t)
	counting := sp.countPods(t)
	script := func(seconds string) v1alpha1.ToolCallSpec {
		return shell("echo start; sleep " + seconds + "; echo end")
	}
	// One ends while nobody listens, one goes on long after, and some are anywhere on their way when it happens.
	brief, long := sp.create(t, script("2")), sp.create(t, script("15"))
	sp.awaitLine(t, brief, "start")
	running := sp.awaitLine(t, long, "start")
	calls := []*v1alpha1.ToolCall{brief, long}
	for range 4 {
		calls = append(calls, sp.create(t, script("0.1")))
	}
	killed := sp.killOperator(t)
	calls = append(calls, sp.create(t, script("0.1")))

	for _, call := range calls {
		done := sp.awaitFinished(t, call)
		expect(t, done, succeeded("start\nend\n"))
		if log := sp.podLog(t, done); strings.Count(log, "start") != 1 {
			t.Errorf("the log of call %s shows that it started otherwise than once: %q", call.Name, log)
		}
		if jobs := sp.jobs(t, done); len(jobs) != 1 || jobs[0].Name != done.Status.Job {
			t.Errorf("call %s has %d Jobs", call.Name, len(jobs))
		}
	}
	after := &v1alpha1.ToolCall{}
	must(t, sp.client.Get(t.Context(), keyOf(long), after))
	if after.Status.Pod != running.Status.Pod || after.Status.Runner.PodUID != running.Status.Runner.PodUID {
		t.Errorf("the long call ran in pod %s at first and in %s in the end", running.Status.Pod, after.Status.Pod)
	}
	for job, pods := range counting.perJob() {
		if pods != 1 {
			t.Errorf("%d pods were made for Job %s", pods, job)
		}
	}
	sp.awaitRestarted(t, killed)
}

// operatorPod is the pod of the replica that leads.
func (s *suite) operatorPod(ctx context.Context) (*corev1.Pod, error) {
	lease, err := s.clients.CoordinationV1().Leases(operatorNamespace).Get(ctx, operatorName, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return nil, err
	}
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return s.clients.CoreV1().Pods(operatorNamespace).Get(ctx, name, metav1.GetOptions{})
}

// killOperator ends the process of the replica that leads with SIGKILL, and returns the container that it was.
func (s *suite) killOperator(t *testing.T) (containerID string) {
	t.Helper()
	pod, err := s.operatorPod(t.Context())
	must(t, err)
	// A container's processes have its pod's UID in the names of their control groups.
	for _, id := range s.processes(t, "/manager --runner-image") {
		groups := s.onNode(t, "cat", "/proc/"+id+"/cgroup")
		if strings.Contains(groups, string(pod.UID)) || strings.Contains(groups, strings.ReplaceAll(string(pod.UID), "-", "_")) {
			s.kill(t, id)
			return pod.Status.ContainerStatuses[0].ContainerID
		}
	}
	t.Fatalf("no process of pod %s was found on the node", pod.Name)
	return ""
}

// awaitRestarted waits until the operator is whole again, so that the next test finds it so.
func (s *suite) awaitRestarted(t *testing.T, containerID string) {
	t.Helper()
	s.awaitTrue(t, "new container of the operator", func(ctx context.Context) (bool, error) {
		pod, err := s.operatorPod(ctx)
		if err != nil || len(pod.Status.ContainerStatuses) == 0 {
			return false, client.IgnoreNotFound(err)
		}
		status := pod.Status.ContainerStatuses[0]
		return status.Ready && status.ContainerID != containerID, nil
	})
}

// A runner that is gone before the operator comes back has left a copy of its result.
func TestResultThatOnlyThePodHolds(t *testing.T) {
	sp := newSpace(t)
	marker := "e2e-holder-" + sp.namespace
	call := sp.create(t, shell("echo out; echo err >&2; exec -a "+marker+" bash -c '"+held+"'"))
	running := sp.awaitLine(t, call, "out")
	sp.awaitProcess(t, marker)
	runner := sp.runnerOf(t, sp.processes(t, marker)[0])
	replicas := sp.scaleOperator(t, 0)
	t.Cleanup(func() { sp.scaleOperatorTo(t, context.Background(), replicas) })
	sp.letGo(t, running)
	sp.awaitTrue(t, "end of the command", func(context.Context) (bool, error) { return len(sp.processes(t, marker)) == 0, nil })
	// Its last words are written when the result is, a moment after the process is gone.
	sp.awaitTrue(t, "last words", func(context.Context) (bool, error) {
		return sp.onNode(t, "sh", "-c", "cat /proc/"+runner+"/root/dev/termination-log") != "", nil
	})
	sp.kill(t, runner)
	sp.await(t, "end of the pod", &corev1.PodList{}, func(o client.Object, gone bool) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && (gone || pod.Status.Phase == corev1.PodFailed)
	}, named(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: running.Status.Pod}})...)
	sp.scaleOperatorTo(t, t.Context(), replicas)
	want := succeeded("out\n")
	want.Stderr = "err\n"
	expect(t, sp.awaitFinished(t, call), want)
}

// scaleOperator stops the operator, and returns how many replicas there were.
func (s *suite) scaleOperator(t *testing.T, replicas int32) (before int32) {
	t.Helper()
	deployment, err := s.clients.AppsV1().Deployments(operatorNamespace).Get(t.Context(), operatorName, metav1.GetOptions{})
	must(t, err)
	s.scaleOperatorTo(t, t.Context(), replicas)
	return *deployment.Spec.Replicas
}

func (s *suite) scaleOperatorTo(t *testing.T, ctx context.Context, replicas int32) {
	t.Helper()
	deployments := s.clients.AppsV1().Deployments(operatorNamespace)
	scale, err := deployments.GetScale(ctx, operatorName, metav1.GetOptions{})
	must(t, err)
	scale.Spec.Replicas = replicas
	_, err = deployments.UpdateScale(ctx, operatorName, scale, metav1.UpdateOptions{})
	must(t, err)
	must(t, poll(ctx, func(ctx context.Context) (bool, error) {
		pods, err := s.clients.CoreV1().Pods(operatorNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + operatorName})
		if err != nil || len(pods.Items) != int(replicas) {
			return false, err
		}
		var current *appsv1.Deployment
		current, err = deployments.Get(ctx, operatorName, metav1.GetOptions{})
		return err == nil && current.Status.ReadyReplicas == replicas, err
	}))
}

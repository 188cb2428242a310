package faults

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

const (
	// pooled is how many pods wait on the node when it goes.
	pooled = 8
	// away is how long calls may take to end whose node is gone. Kubernetes looks every 20 s whether a pod's node is
	// there, and gives a node that isn't 40 s to appear.
	away = 120 * time.Second
	// refilled is how long the pool may take to be full again once there is a node: pods that went with it are no
	// reason to try less often.
	refilled = time.Minute
)

// The node loses its power, and its Node object is deleted: nobody on it says anything any more. What ran there has
// ended before the node is back, and isn't run again; what had no pod there waits for it.
func TestNodeGone(t *testing.T) {
	b := newBed(t)
	b.operatorOutside(t)
	b.warm(t, pooled)
	b.awaitWarm(t, pooled)
	l := b.newLoad(t, inFlight, longest)
	l.awaitBegun(t, inFlight/2)
	node := b.node(t)
	t.Cleanup(func() { b.powerOn(t, node.Name) })
	b.cutPower(t)
	// The operator may believe for a while that pods wait, and that the node starts others.
	late := l.more(t, "late", 10)
	b.deleteNode(t, node)
	deleted := time.Now()
	// The scheduler hears of it, and gives the node no more pods.
	pause(t, 3*time.Second)
	lost := b.podsOf(t, node.Name)

	l.awaitEndOf(t, lost, deleted)
	waiting := l.more(t, "waiting", 5)
	b.expectGone(t, node)
	t.Logf("after %s, with the node away: of %d calls %d have ended, of %d created while it went %d",
		time.Since(deleted).Round(time.Second), len(l.calls), l.count(hasEnded), len(late), l.countOf(late, hasEnded))
	b.powerOn(t, node.Name)
	back := time.Now()
	l.verify(t, "node gone, and back after its calls had ended", l.recover(t, back), v1alpha1.ReasonPodLost)
	l.expectLost(t, lost)
	l.expectCompleted(t, waiting)
	b.awaitWarm(t, pooled)
	if took := time.Since(back); took > refilled {
		t.Errorf("the pool was full again %s after the node was back, more than %s", took, refilled)
	}
	b.expectNothingOf(t, l, lost)
}

// warm has that many pods wait for calls of the bed's environment.
func (b *bed) warm(t *testing.T, size int32) {
	t.Helper()
	env := &v1alpha1.ExecutionEnvironment{}
	must(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: b.namespace, Name: environmentName}, env))
	before := env.DeepCopy()
	env.Spec.WarmPool = &v1alpha1.WarmPool{Size: size}
	must(t, b.client.Patch(t.Context(), env, client.MergeFrom(before)))
}

// node is the only one that there is.
func (b *bed) node(t *testing.T) *corev1.Node {
	t.Helper()
	nodes := &corev1.NodeList{}
	must(t, b.client.List(t.Context(), nodes))
	if len(nodes.Items) != 1 {
		t.Fatalf("the cluster has %d nodes: this test knows how to lose the only one", len(nodes.Items))
	}
	return &nodes.Items[0]
}

// podPackets drops what pods send to the machine and get from it. A machine without power doesn't say either that its
// connections end.
var podPackets = []string{"FORWARD", "-j", "DROP"}

// killPods kills all that runs in pods, and what containerd left to look after it. Two rounds: something may have
// been about to start.
const killPods = `for round in 1 2; do
	for p in /proc/[0-9]*; do
		if grep -qs /kubepods/ $p/cgroup || grep -qsx containerd-shim $p/comm; then kill -KILL ${p#/proc/}; fi
	done
	sleep 0.5
done`

// cutPower stops all of the node that isn't the control plane.
func (b *bed) cutPower(t *testing.T) {
	t.Helper()
	b.onNode(t, append([]string{"iptables", "-t", "mangle", "-I"}, podPackets...)...)
	b.control(t, "stop", "kubelet")
	b.control(t, "stop", "containerd")
	b.onNode(t, "sh", "-c", killPods)
	if left := b.onNode(t, "sh", "-c", "grep -l /kubepods/ /proc/[0-9]*/cgroup || true"); left != "" {
		t.Fatalf("processes of pods have survived the node's end:\n%s", left)
	}
}

// powerOn undoes it, also when the test was cut short, and waits until the node is whole. It registers itself.
func (b *bed) powerOn(t *testing.T, node string) {
	t.Helper()
	open := append([]string{"exec", "--", "iptables", "-t", "mangle", "-D"}, podPackets...)
	// It fails when the rule is gone already.
	_ = exec.Command(b.program, open...).Run()
	b.control(t, "start", "containerd")
	b.control(t, "start", "kubelet")
	b.awaitComponents(t)
	await(t, "ready node", func(ctx context.Context) (bool, error) {
		now := &corev1.Node{}
		err := b.client.Get(ctx, client.ObjectKey{Name: node}, now)
		return slices.ContainsFunc(now.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) && len(now.Spec.Taints) == 0, err
	})
}

func (b *bed) deleteNode(t *testing.T, node *corev1.Node) {
	t.Helper()
	must(t, b.client.Delete(t.Context(), node, client.Preconditions{UID: &node.UID}))
	b.expectGone(t, node)
}

func (b *bed) expectGone(t *testing.T, node *corev1.Node) {
	t.Helper()
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(node), &corev1.Node{}); !apierrors.IsNotFound(err) {
		t.Fatalf("node %s isn't gone: %v", node.Name, err)
	}
}

// podsOf are the namespace's pods that a node has, by their UID.
func (b *bed) podsOf(t *testing.T, node string) map[string]corev1.Pod {
	t.Helper()
	pods := &corev1.PodList{}
	must(t, b.client.List(t.Context(), pods, client.InNamespace(b.namespace)))
	found := map[string]corev1.Pod{}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == node {
			found[string(pod.UID)] = pod
		}
	}
	return found
}

// more creates further calls that write and end.
func (l *load) more(t *testing.T, prefix string, count int) []*expected {
	t.Helper()
	var calls []*expected
	for i := range count {
		calls = append(calls, newExpected(prefix, i, 0))
	}
	l.calls = append(l.calls, calls...)
	l.create(t, calls...)
	return calls
}

func (l *load) countOf(calls []*expected, is func(*v1alpha1.ToolCall) bool) int {
	return l.count(func(call *v1alpha1.ToolCall) bool {
		return is(call) && slices.ContainsFunc(calls, func(e *expected) bool { return e.name == call.Name })
	})
}

// awaitEndOf waits, for a bounded time, until the pods are gone, and every call with them that had one.
func (l *load) awaitEndOf(t *testing.T, lost map[string]corev1.Pod, since time.Time) {
	t.Helper()
	held := l.heldBy(lost)
	if len(held) < inFlight/4 {
		t.Fatalf("the node had %d calls when it went, which is too few to show anything", len(held))
	}
	in := func(call *v1alpha1.ToolCall) bool { return held[call.Name] }
	await(t, "end of the calls that the node had", func(ctx context.Context) (bool, error) {
		left := len(held) - l.count(func(call *v1alpha1.ToolCall) bool { return in(call) && hasEnded(call) })
		for uid, pod := range lost {
			now := &corev1.Pod{}
			if err := l.bed.client.Get(ctx, client.ObjectKeyFromObject(&pod), now); err == nil && string(now.UID) == uid {
				return false, fmt.Errorf("%d calls have not ended, pod %s is still there: %s", left, pod.Name, now.Status.Phase)
			}
		}
		return left == 0, nil
	})
	if took := time.Since(since); took > away {
		t.Errorf("the calls that the node had took %s to end, more than %s", took, away)
	}
	t.Logf("the node had %d pods, and %d calls that had not ended; the last of those ended %s after its Node was deleted",
		len(lost), len(held), l.lastEnd(in).Sub(since).Round(100*time.Millisecond))
}

// heldBy are the calls that have not ended and that a pod was made for, or given to.
func (l *load) heldBy(pods map[string]corev1.Pod) map[string]bool {
	made := map[string]bool{}
	for _, pod := range pods {
		made[pod.Annotations[jobspec.AnnotationCall]] = true
	}
	held := map[string]bool{}
	seen, _, _ := l.snapshot()
	for name, call := range seen {
		given := call.Status.Runner != nil && pods[call.Status.Runner.PodUID].Name != ""
		if !hasEnded(call) && (given || made[name]) {
			held[name] = true
		}
	}
	return held
}

// lastEnd is when the last of the calls ended.
func (l *load) lastEnd(of func(*v1alpha1.ToolCall) bool) (last time.Time) {
	seen, ended, _ := l.snapshot()
	for name, at := range ended {
		if of(seen[name]) && at.After(last) {
			last = at
		}
	}
	return last
}

// expectLost wants honest ends of what didn't complete: what had begun may have run, what hadn't has not. Calls that
// completed did so before the node went, or after it was back, in another pod.
func (l *load) expectLost(t *testing.T, lost map[string]corev1.Pod) {
	t.Helper()
	seen, _, _ := l.snapshot()
	begun, warm, before := 0, 0, 0
	for name, call := range seen {
		s := call.Status
		if s.Reason != v1alpha1.ReasonPodLost {
			continue
		}
		if s.ExitCode != nil || s.RetrySafe == nil || *s.RetrySafe == (s.Runner != nil) {
			t.Errorf("call %s ended with exit code %v, retrySafe %v, and its runner %+v: %s", name, s.ExitCode, s.RetrySafe, s.Runner, s.Message)
		}
		if s.Runner == nil {
			before++
			continue
		}
		begun++
		if s.Timings.Path == v1alpha1.PathWarm {
			warm++
		}
		if lost[s.Runner.PodUID].Name == "" {
			t.Errorf("call %s was lost with pod %s, which was not on the node", name, s.Pod)
		}
	}
	if begun == 0 || warm == 0 || before == 0 {
		t.Errorf("the test shows nothing of a kind of call: %d had begun, %d of them in waiting pods, %d had not", begun, warm, before)
	}
	t.Logf("lost: %d that had begun (retrySafe false), %d of them in waiting pods, and %d that certainly had not (retrySafe true)", begun, warm, before)
}

// expectCompleted wants calls that only had to wait to have run.
func (l *load) expectCompleted(t *testing.T, calls []*expected) {
	t.Helper()
	seen, _, _ := l.snapshot()
	for _, want := range calls {
		if s := seen[want.name].Status; s.Phase != v1alpha1.PhaseSucceeded {
			t.Errorf("call %s was created while there was no node, and ended %s: %s", want.name, s.Reason, s.Message)
		}
	}
}

// expectNothingOf wants neither Jobs of lost calls nor anything of the lost pods to be left, in the API or on the node.
func (b *bed) expectNothingOf(t *testing.T, l *load, lost map[string]corev1.Pod) {
	t.Helper()
	seen, _, _ := l.snapshot()
	began := time.Now()
	await(t, "end of all that the lost calls had", func(ctx context.Context) (bool, error) {
		jobs := &batchv1.JobList{}
		if err := b.client.List(ctx, jobs, client.InNamespace(b.namespace)); err != nil {
			return false, err
		}
		for _, job := range jobs.Items {
			call := seen[ptr.Deref(metav1.GetControllerOf(&job), metav1.OwnerReference{}).Name]
			if call != nil && call.Status.Reason == v1alpha1.ReasonPodLost {
				return false, fmt.Errorf("call %s was lost, and its Job %s is still there", call.Name, job.Name)
			}
		}
		traces := b.tracesOf(t, lost)
		if len(traces) > 0 {
			return false, fmt.Errorf("%d traces on the node, for example %s", len(traces), traces[0])
		}
		return true, nil
	})
	t.Logf("nothing was left of the %d pods, in the API or on the node, %s after all calls had ended", len(lost), time.Since(began).Round(time.Second))
}

// podTraces prints lines with the UIDs of all pods that something on the node belongs to.
const podTraces = `ls $STATE/kubelet/pods | sed 's/^/folder /'
ls $STATE/pod-logs | sed 's/^/log folder /'
find /sys/fs/cgroup -type d -path '*kubepods*' | sed 's/^/control group /'
sed 's/^/mount /' /proc/self/mountinfo
cat /proc/[0-9]*/cgroup 2>/dev/null | sed 's/^/process in /'
for c in $(ctr -n k8s.io containers ls -q); do
	ctr -n k8s.io containers info $c 2>/dev/null | grep -o '"io.kubernetes.pod.uid": "[^"]*"' | sed 's/^/container /'
done`

// tracesOf is what is on the node of some pods.
func (b *bed) tracesOf(t *testing.T, pods map[string]corev1.Pod) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(b.onNode(t, "sh", "-c", "STATE="+b.state+"\n"+podTraces)) {
		for uid := range pods {
			if inPod(line, uid) {
				found = append(found, strings.TrimSpace(line))
			}
		}
	}
	return found
}

// awaitWarm waits until that many pods are offered to calls.
func (b *bed) awaitWarm(t *testing.T, count int32) {
	t.Helper()
	key := client.ObjectKey{Namespace: b.namespace, Name: environmentName}
	await(t, "warm pool", func(ctx context.Context) (bool, error) {
		env := &v1alpha1.ExecutionEnvironment{}
		err := b.client.Get(ctx, key, env)
		return env.Status.Warm != nil && env.Status.Warm.Ready == count, err
	})
}

package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// tolerance is how far two clocks that agree may seem to be apart: the API server says whole seconds only, and
// things take their time.
const tolerance = 5 * time.Minute

// The operator's clock is an hour off from one moment to the next, while calls are in flight and others wait for
// their start within less than that hour. Finished calls may stay for less than it too, so that a wrong clock
// would delete them.
func TestOperatorsClockIsAnHourOff(t *testing.T) {
	for name, offset := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, func(e *v1alpha1.ExecutionEnvironmentSpec) {
				e.StartTimeoutSeconds, e.TTLSecondsAfterFinished = ptr.To(int32(180)), ptr.To(int32(1800))
			})
			l := b.newLoad(t, inFlight, longest)
			l.awaitBegun(t, inFlight/2)
			pod, err := b.leader(t.Context())
			must(t, err)
			skew(t, managers(pod)[0], offset)
			over := time.Now()
			b.expectLease(t, offset)
			stuck := b.createStuck(t)
			l.verify(t, "operator's clock an hour "+name, l.recover(t, over))
			b.expectKept(t, l)
			b.expectStartTimeout(t, stuck)
		})
	}
}

// expectLease shows that the operator does live in another time: it writes its clock into its lease.
func (b *bed) expectLease(t *testing.T, offset time.Duration) {
	t.Helper()
	await(t, fmt.Sprintf("lease that was renewed %s from now", offset), func(ctx context.Context) (bool, error) {
		lease, err := b.clients.CoordinationV1().Leases(operatorNamespace).Get(ctx, operatorName, metav1.GetOptions{})
		if err != nil || lease.Spec.RenewTime == nil {
			return false, err
		}
		return (time.Until(lease.Spec.RenewTime.Time) - offset).Abs() < tolerance, nil
	})
}

// expectKept wants no call deleted before its time.
func (b *bed) expectKept(t *testing.T, l *load) {
	t.Helper()
	calls := &v1alpha1.ToolCallList{}
	must(t, b.client.List(t.Context(), calls, client.InNamespace(b.namespace)))
	there := map[string]bool{}
	for _, call := range calls.Items {
		there[call.Name] = true
	}
	for _, want := range l.calls {
		if !there[want.name] {
			t.Errorf("call %s was deleted half an hour too early at least", want.name)
		}
	}
}

// createStuck makes a call in an environment whose pods can't start, with little time to do so.
func (b *bed) createStuck(t *testing.T) *v1alpha1.ToolCall {
	t.Helper()
	env := &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "stuck"},
		Spec: v1alpha1.ExecutionEnvironmentSpec{
			Image: toolImage, ImagePullPolicy: corev1.PullIfNotPresent, PolicyRef: &v1alpha1.PolicyReference{Name: b.namespace},
			NodeSelector: map[string]string{"faults.toolcall.dev/none": "x"}, StartTimeoutSeconds: ptr.To(int32(10)),
		},
	}
	must(t, b.client.Create(t.Context(), env))
	call := newExpected("stuck", 0, 0).object(b.namespace)
	call.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: env.Name}
	must(t, b.client.Create(t.Context(), call))
	return call
}

// expectStartTimeout wants the stuck call to have ended after its ten seconds, neither at once nor an hour later.
func (b *bed) expectStartTimeout(t *testing.T, call *v1alpha1.ToolCall) {
	t.Helper()
	await(t, "end of the call that can't start", func(ctx context.Context) (bool, error) {
		err := b.client.Get(ctx, client.ObjectKeyFromObject(call), call)
		return hasEnded(call), err
	})
	took := time.Duration(ptr.Deref(call.Status.Timings.FinishedMilliseconds, 0)) * time.Millisecond
	if call.Status.Reason != v1alpha1.ReasonUnschedulable || took < 8*time.Second || took > 30*time.Second {
		t.Errorf("the call that can't start within 10 s ended %s after %s: %s", call.Status.Reason, took, call.Status.Message)
	}
	if !ptr.Deref(call.Status.RetrySafe, false) {
		t.Error("it never started, and isn't said to be safe to create again")
	}
}

// The runners' clocks are an hour off, and each has to check the certificate of an operator that started after
// that.
func TestRunnersClocksAreAnHourOff(t *testing.T) {
	const pods = 8
	for name, offset := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, func(e *v1alpha1.ExecutionEnvironmentSpec) { e.WarmPool = &v1alpha1.WarmPool{Size: pods} })
			waiting := b.awaitWarm(t, pods)
			skewed := map[string]bool{}
			for _, pod := range waiting {
				for _, process := range processes(string(pod.UID), runnerProgram) {
					skew(t, process, offset)
				}
				skewed[pod.Name] = true
			}
			b.killEveryOperator(t)
			b.awaitOperator(t)
			b.awaitConnections(t, pods)
			l := b.newLoad(t, pods, 5*time.Second)
			l.verify(t, "runners' clocks an hour "+name, l.recover(t, time.Now()))
			b.expectSkewed(t, l, skewed, offset)
		})
	}
}

// runnerProgram is the first process of every tool pod.
const runnerProgram = "/.toolcall/runner"

// awaitWarm waits until that many pods are offered to calls, and returns them.
func (b *bed) awaitWarm(t *testing.T, count int32) []corev1.Pod {
	t.Helper()
	key := client.ObjectKey{Namespace: b.namespace, Name: environmentName}
	await(t, "warm pool", func(ctx context.Context) (bool, error) {
		env := &v1alpha1.ExecutionEnvironment{}
		err := b.client.Get(ctx, key, env)
		return env.Status.Warm != nil && env.Status.Warm.Ready == count, err
	})
	pods := &corev1.PodList{}
	must(t, b.client.List(t.Context(), pods, client.InNamespace(b.namespace)))
	return pods.Items
}

// awaitConnections waits until that many runners are connected to the operator.
func (s *suite) awaitConnections(t *testing.T, count int) {
	t.Helper()
	await(t, "connection of the waiting runners", func(ctx context.Context) (bool, error) {
		pod, err := s.leader(ctx)
		if err != nil {
			return false, err
		}
		raw, err := s.clients.CoreV1().Pods(operatorNamespace).ProxyGet("http", pod.Name, "8080", "metrics", nil).DoRaw(ctx)
		return strings.Contains(string(raw), fmt.Sprintf("\ntoolcall_runner_connections %d\n", count)), err
	})
}

// expectSkewed shows that the clocks were off: a runner says by its own when its command ran, and nothing else of
// the call goes by that.
func (b *bed) expectSkewed(t *testing.T, l *load, skewed map[string]bool, offset time.Duration) {
	t.Helper()
	seen, _, _ := l.snapshot()
	count := 0
	for name, call := range seen {
		if !skewed[call.Status.Pod] || call.Status.StartTime == nil {
			continue
		}
		count++
		if off := call.Status.StartTime.Sub(call.CreationTimestamp.Time); (off - offset).Abs() > tolerance {
			t.Errorf("call %s started %s after its creation by its runner's clock, which is %s off", name, off, offset)
		}
		if took := ptr.Deref(call.Status.Timings.FinishedMilliseconds, 0); took < 0 || took > tolerance.Milliseconds() {
			t.Errorf("call %s took %d ms", name, took)
		}
	}
	if count < len(skewed)/2 {
		t.Errorf("%d calls ran under a clock that was off, of %d pods that waited with one", count, len(skewed))
	}
}

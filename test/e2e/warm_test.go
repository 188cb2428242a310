package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/full"
)

// newWarmEnvironment makes an environment with pods that wait, and waits for them.
func (sp *space) newWarmEnvironment(t *testing.T, size int32, adjust ...func(*v1alpha1.ExecutionEnvironment)) {
	t.Helper()
	warm := func(e *v1alpha1.ExecutionEnvironment) { e.Spec.WarmPool = &v1alpha1.WarmPool{Size: size} }
	sp.newEnvironment(t, "warm", append(adjust, warm)...)
	sp.awaitWarm(t, size)
}

func (sp *space) awaitWarm(t *testing.T, ready int32) {
	t.Helper()
	sp.await(t, "warm pool", &v1alpha1.ExecutionEnvironmentList{}, func(o client.Object, gone bool) bool {
		env, ok := o.(*v1alpha1.ExecutionEnvironment)
		return ok && !gone && env.Name == "warm" && env.Status.Warm != nil && env.Status.Warm.Ready == ready
	}, client.InNamespace(sp.namespace))
}

func expectPath(t *testing.T, call *v1alpha1.ToolCall, want v1alpha1.Path) {
	t.Helper()
	if call.Status.Timings == nil || call.Status.Timings.Path != want {
		t.Errorf("call %s went %+v, want path %s", call.Name, call.Status.Timings, want)
	}
}

// Each call brings something of its own that a pod which was started before it can't have known.
func TestWaitingPodsTakeAnyCall(t *testing.T) {
	t.Parallel()
	sp := newSpace(t, codeOnlyGated)
	sp.newData(t, map[string]string{"key": "from a Secret"})
	// One for each call: the refill may be slower than the calls.
	sp.newWarmEnvironment(t, 8, func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Env = []v1alpha1.EnvVar{value("A", "environment"), value("B", "environment"), fromSecret("S", "data", "key", false)}
	})
	stdin := in("warm", structured("cat"))
	stdin.Stdin = "fed"
	variables := in("warm", shell(`echo "$A $B $S"`))
	variables.Env = []v1alpha1.CallEnvVar{{Name: "B", Value: "call"}}
	elsewhere := in("warm", shell("pwd"))
	elsewhere.WorkingDir = "/tmp"
	for name, tc := range map[string]struct {
		spec v1alpha1.ToolCallSpec
		want outcome
	}{
		"stdin":               {stdin, succeeded("fed")},
		"variables":           {variables, succeeded("environment call [redacted: S]\n")},
		"a directory":         {elsewhere, succeeded("/tmp\n")},
		"a snippet":           {in("warm", code("python", "print(6 * 7)")), succeeded("42\n")},
		"an exit code":        {in("warm", shell("exit 3")), exited(3, "", "")},
		"a closed network":    {in("warm", code("python", offline)), succeeded("PermissionError\n")},
		"an unknown command":  {in("warm", structured("nosuchcommand")), neverRan(v1alpha1.ReasonCommandNotFound)},
		"nothing of the last": {in("warm", shell("ls -A /workspace; touch /workspace/mine")), succeeded("")},
	} {
		t.Run(name, func(t *testing.T) {
			call := sp.run(t, tc.spec)
			expect(t, call, tc.want)
			expectPath(t, call, v1alpha1.PathWarm)
		})
	}
}

// offline tries what code without network access may not.
const offline = `
import socket
try:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    print("open")
except PermissionError:
    print("PermissionError")
`

func TestAnEmptyPoolKeepsNobodyWaiting(t *testing.T) {
	full.Only(t, "controllers/toolcall shows it before an API server")
	t.Parallel()
	sp := newSpace(t)
	sp.newWarmEnvironment(t, 1)
	first, second := sp.create(t, in("warm", shell("sleep 3; echo a"))), sp.create(t, in("warm", shell("echo b")))
	a, b := sp.awaitFinished(t, first), sp.awaitFinished(t, second)
	expect(t, a, succeeded("a\n"))
	expect(t, b, succeeded("b\n"))
	if a.Status.Pod == b.Status.Pod {
		t.Error("two calls had one pod")
	}
	sp.awaitWarm(t, 1)
}

// An image that nobody has: pods are tried less and less often, the environment says why, and calls end.
func TestAPoolThatCannotStartDoesNotLoop(t *testing.T) {
	full.Only(t, "controllers/executionenvironment shows it before an API server")
	t.Parallel()
	sp := newSpace(t)
	watching, err := sp.client.Watch(t.Context(), &batchv1.JobList{}, client.InNamespace(sp.namespace))
	must(t, err)
	made := map[types.UID]bool{}
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		for event := range watching.ResultChan() {
			if job, ok := event.Object.(*batchv1.Job); ok && job.Spec.Template.Annotations["toolcall.dev/pool"] == "broken" {
				made[job.UID] = true
			}
		}
	}()
	sp.newEnvironment(t, "broken", func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Image = "toolcall.invalid/nobody/has:this"
		e.Spec.StartTimeoutSeconds = ptr.To(int32(20)) // A name server that doesn't answer may do so later.
		e.Spec.WarmPool = &v1alpha1.WarmPool{Size: 2}
	})
	sp.await(t, "condition Warm False", &v1alpha1.ExecutionEnvironmentList{}, func(o client.Object, gone bool) bool {
		env, ok := o.(*v1alpha1.ExecutionEnvironment)
		if !ok || gone || env.Name != "broken" {
			return false
		}
		c := meta.FindStatusCondition(env.Status.Conditions, v1alpha1.ConditionWarm)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonPodsFail && strings.Contains(c.Message, "toolcall.invalid")
	}, client.InNamespace(sp.namespace))
	env := &v1alpha1.ExecutionEnvironment{}
	must(t, sp.client.Get(t.Context(), client.ObjectKey{Namespace: sp.namespace, Name: "broken"}, env))
	sp.awaitEvent(t, env, v1alpha1.ReasonPodsFail, "toolcall.invalid")
	expect(t, sp.run(t, in("broken", shell("true"))), neverRan(v1alpha1.ReasonImagePullFailed))
	time.Sleep(10 * time.Second) // Long enough for a loop to show.
	watching.Stop()
	<-counted
	if len(made) > 12 {
		t.Errorf("%d Jobs were made for a pool of 2 that can't start", len(made))
	}
}

// What changes in the environment is in the pods of the next calls, and the running one keeps what it has.
func TestAChangedEnvironmentReplacesTheWaitingPods(t *testing.T) {
	full.Only(t, "controllers/executionenvironment shows it before an API server")
	t.Parallel()
	sp := newSpace(t)
	sp.newWarmEnvironment(t, 2, func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.PodMetadata = &v1alpha1.PodMetadata{Labels: map[string]string{"version": "old"}}
	})
	running := sp.create(t, in("warm", shell("echo go; "+held+"; echo end")))
	running = sp.awaitLine(t, running, "go")
	sp.retryConflict(t, func() error {
		env := &v1alpha1.ExecutionEnvironment{}
		if err := sp.client.Get(t.Context(), client.ObjectKey{Namespace: sp.namespace, Name: "warm"}, env); err != nil {
			return err
		}
		env.Spec.PodMetadata.Labels["version"] = "new"
		return sp.client.Update(t.Context(), env)
	})
	sp.awaitTrue(t, "only new pods to wait", func(ctx context.Context) (bool, error) {
		pods := &corev1.PodList{}
		err := sp.client.List(ctx, pods, client.InNamespace(sp.namespace), client.MatchingLabels{"version": "new"})
		old := &corev1.PodList{}
		err = errors.Join(err, sp.client.List(ctx, old, client.InNamespace(sp.namespace), client.MatchingLabels{"version": "old"}))
		return len(pods.Items) == 2 && len(old.Items) == 1, err
	})
	sp.awaitWarm(t, 2)
	next := sp.run(t, in("warm", shell("echo new")))
	expect(t, next, succeeded("new\n"))
	expectPath(t, next, v1alpha1.PathWarm)
	sp.letGo(t, running)
	expect(t, sp.awaitFinished(t, running), succeeded("go\nend\n"))
}

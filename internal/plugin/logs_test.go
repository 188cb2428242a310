package plugin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// detached creates a call without waiting for it.
func (f *fixture) detached(name string) {
	f.t.Helper()
	f.run("run", "--detach", "--name", name, "--", "ls").expect(f.t, 0, name)
}

// setRunning writes what the operator writes when a pod runs the call.
func (f *fixture) setRunning(name, pod string) {
	f.t.Helper()
	call := f.call(name)
	call.Status = *running(pod)
	if err := f.client.Status().Update(f.t.Context(), call); err != nil {
		f.t.Fatal(err)
	}
}

func TestLogsOfAFinishedCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"both", "silent", "denied"} {
		f.detached(name)
	}
	f.end("both", withOutput(succeeded(), "out\nmore", "err\n"))
	f.end("silent", withOutput(succeeded(), "", ""))
	f.end("denied", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: "ShellDisabled", Message: "no\x1b[0m"})
	for name, want := range map[string]printed{
		"both":   {"out\nmore", "err\n", 0},
		"silent": {"", "", 0},
		"denied": {"", "call denied has no recorded output: Denied (ShellDisabled): no^[[0m\n", 0},
	} {
		for _, flags := range [][]string{nil, {"-f"}, {"--live=never"}, {"--raw"}} {
			if got := f.run(append([]string{"logs", name}, flags...)...); got != want {
				t.Errorf("logs %s %q: %+v", name, flags, got)
			}
		}
	}
}

// Of a call that runs, logs prints what it has written so far.
func TestLogsOfARunningCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("c")
	f.run("logs", "c").expect(t, 0, "call c has not started: to wait for it, run kubectl toolcall logs -f c")
	starting := true
	f.setRunning("c", f.kubelet(func(w http.ResponseWriter, _ *http.Request) {
		if starting {
			http.Error(w, "container is waiting to start: ContainerCreating", http.StatusBadRequest)
			return
		}
		_, _ = w.Write([]byte("so far\n"))
	}))
	f.run("logs", "c").expect(t, 0, "call c is starting: its log is not available yet")
	starting = false
	if got := f.run("logs", "c"); got != (printed{"so far\n", "", 0}) {
		t.Errorf("got %+v", got)
	}
}

func TestLogsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("c")
	f.setRunning("c", "no-such-pod")
	f.run("logs", "c").expect(t, 1, "read the log of pod no-such-pod")
	user := f.namespace + "-reader"
	f.make(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "reader"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"toolcall.dev"}, Resources: []string{"toolcalls"}, Verbs: []string{"get", "list", "watch"}},
	}}, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	f.eventually("permission of "+user, func() bool { return f.run("get", "c", "--as", user).code == 0 })
	f.run("logs", "c", "--as", user).expect(t, 1, "needs permission to get pods/log (the ClusterRole toolcall-user grants it)")
	f.run("logs", "none").expect(t, 1, `call none not found in namespace "`+f.namespace)
	f.run("logs", "c", "--live=maybe").expect(t, 1, "--live=maybe: must be auto, always or never")
}

// testTimeout bounds every wait, so that a test that fails ends.
const testTimeout = 2 * time.Minute

// eventually waits until a condition holds.
func (f *fixture) eventually(what string, holds func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(testTimeout); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("no %s", what)
		}
	}
}

// Where the streams go to different places, the mixed log of the pod is not shown: both come at the end.
func TestFollowedLogsKeepTheStreamsSeparate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	pod := f.kubelet(func(http.ResponseWriter, *http.Request) { t.Error("the mixed log was read") })
	f.detached("c")
	f.setRunning("c", pod)
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		s := withOutput(succeeded(), "out\n", "err\n")
		s.Pod = pod
		return finished(s)
	})
	done := make(chan printed, 1)
	go func() { done <- f.run("logs", "-f", "c") }()
	f.touch("c")
	if got := <-done; got != (printed{"out\n", "err\n", 0}) {
		t.Errorf("got %+v", got)
	}
}

// touch changes a call, so that those who watch it see it again.
func (f *fixture) touch(name string) {
	f.t.Helper()
	call := f.call(name)
	before := call.DeepCopy()
	call.Labels = map[string]string{"touched": "yes"}
	if err := f.client.Patch(f.t.Context(), call, client.MergeFrom(before)); err != nil {
		f.t.Fatal(err)
	}
}

func TestWaitPrintsOutcomes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"good", "bad", "late", "denied"} {
		f.detached(name)
	}
	f.end("good", succeeded())
	f.end("bad", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: "NonZeroExit", ExitCode: ptr.To(int32(9)), DurationMilliseconds: ptr.To(int64(61500))})
	f.end("denied", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: "CodeDisabled"})
	for line, want := range map[string]printed{
		"good":              {"good Succeeded Completed exit 0 after 7ms\n", "", 0},
		"bad":               {"bad Failed NonZeroExit exit 9 after 1m2s\n", "", 9},
		"good denied bad":   {"good Succeeded Completed exit 0 after 7ms\ndenied Denied CodeDisabled\nbad Failed NonZeroExit exit 9 after 1m2s\n", "", 126},
		"bad denied":        {"bad Failed NonZeroExit exit 9 after 1m2s\ndenied Denied CodeDisabled\n", "", 9},
		"good --timeout 1m": {"good Succeeded Completed exit 0 after 7ms\n", "", 0},
	} {
		if got := f.run(append([]string{"wait"}, strings.Fields(line)...)...); got != want {
			t.Errorf("wait %s: %+v", line, got)
		}
	}
	f.run("wait", "late", "good", "--timeout", "100ms").expect(t, 125, "call late did not finish within --timeout")
	f.run("wait", "none", "bad").expect(t, 125, "wait for call none", "bad Failed")
}

func TestCancelRequestsCancellation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("a")
	f.detached("b")
	f.run("cancel", "a", "none", "b").expect(t, 1, "a: cancellation requested b: cancellation requested", "call none not found")
	if !f.call("a").Spec.Cancel || !f.call("b").Spec.Cancel {
		t.Error("a call was not cancelled")
	}
	f.run("cancel", "a").expect(t, 0, "a: cancellation requested")
	f.run("cancel", "a", "--as", "nobody").expect(t, 1, "cancel call "+f.namespace+"/a")
}

package calls

import (
	"bytes"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestLogsOfAFinishedCall(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	for _, name := range []string{"both", "silent", "denied"} {
		f.Detached(name)
	}
	f.End("both", plugintest.WithOutput(plugintest.Succeeded(), "out\nmore", "err\n"))
	f.End("silent", plugintest.WithOutput(plugintest.Succeeded(), "", ""))
	f.End("denied", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: "ShellDisabled", Message: "no\x1b[0m"})
	for name, want := range map[string]plugintest.Printed{
		"both":   {Out: "out\nmore", Err: "err\n"},
		"silent": {Code: 0},
		"denied": {Err: "call denied has no recorded output: Denied (ShellDisabled): no^[[0m\n"},
	} {
		for _, flags := range [][]string{nil, {"-f"}, {"--raw"}} {
			if got := f.Run(append([]string{"logs", name}, flags...)...); got != want {
				t.Errorf("logs %s %q: %+v", name, flags, got)
			}
		}
	}
	for flags, want := range map[string]plugintest.Printed{
		"--stream stdout":                         {Out: "out\nmore"},
		"--stream stderr":                         {Err: "err\n"},
		"--offset 2":                              {Out: "t\nmore", Err: "r\n"},
		"--stream stdout --offset 1 --limit 4":    {Out: "ut\nm"},
		"-f --stream stdout --offset 1 --limit 4": {Out: "ut\nm"},
	} {
		if got := f.Run(append([]string{"logs", "both"}, strings.Fields(flags)...)...); got != want {
			t.Errorf("logs %s: %+v", flags, got)
		}
	}
}

// Of a call that runs, logs prints what it has written so far; with -f, it goes on until the end, over a restart of the API.
func TestLogsOfARunningCall(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("c")
	f.Run("logs", "c").Expect(t, 0, "call c has not started: to wait for it, run kubectl toolcall logs -f c")
	stdout, stderr := f.Writing(f.Call("c"), "so far\n"), f.Outputs.Add(f.Call("c"), output.Stderr)
	f.SetRunning("c", "pod")
	if got := f.Run("logs", "c"); got != (plugintest.Printed{Out: "so far\n"}) {
		t.Errorf("got %+v", got)
	}
	out := &signalWriter{wrote: make(chan struct{}, 100)}
	var errs bytes.Buffer
	code := make(chan int, 1)
	go func() {
		args := []string{"--kubeconfig", f.Kubeconfig, "-n", f.Namespace, "logs", "-f", "c"}
		code <- plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: &errs}).Execute(args)
	}()
	<-out.wrote
	_, _ = stdout.Write([]byte("more\n"))
	<-out.wrote
	_, _ = stderr.Write([]byte("oops"))
	stdout.Finish()
	stderr.Finish()
	f.End("c", plugintest.WithOutput(plugintest.Succeeded(), "so far\nmore\n", "oops"))
	if got := <-code; got != 0 || out.String() != "so far\nmore\n" || errs.String() != "oops" {
		t.Errorf("exit code %d, %q, %q", got, out.String(), errs.String())
	}
}

// logs -f may come before the call has started, and ends with a call that never starts.
func TestLogsOfACallThatHasNotStarted(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("c")
	f.Detached("denied")
	got := make(chan plugintest.Printed, 2)
	for _, name := range []string{"c", "denied"} {
		go func() { got <- f.Run("logs", "-f", name) }()
	}
	stdout := f.Writing(f.Call("c"), "out\n")
	f.SetRunning("c", "pod")
	stdout.Finish()
	f.Outputs.Add(f.Call("c"), output.Stderr).Finish()
	f.End("c", plugintest.WithOutput(plugintest.Succeeded(), "out\n", ""))
	if first := <-got; first != (plugintest.Printed{Out: "out\n"}) {
		t.Errorf("got %+v", first)
	}
	f.End("denied", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: "ShellDisabled", Message: "no"})
	if second := <-got; second != (plugintest.Printed{Err: "call denied has no recorded output: Denied (ShellDisabled): no\n"}) {
		t.Errorf("got %+v", second)
	}
}

// A part that wasn't kept is marked on standard error, and what is behind it comes.
func TestLogsOfAShortenedStream(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("c")
	stdout := f.Writing(f.Call("c"), "0123456789")
	stdout.Leave(3, 7)
	stdout.Finish()
	f.SetRunning("c", "pod")
	if got := f.Run("logs", "c", "--stream", "stdout"); got != (plugintest.Printed{Out: "012789", Err: "note: 4 bytes of stdout, from offset 3 on, were not kept\n"}) {
		t.Errorf("got %+v", got)
	}
}

func TestLogsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("c")
	f.Writing(f.Call("c"), "secret")
	f.SetRunning("c", "pod")
	user := f.Namespace + "-reader"
	f.Make(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "reader"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"toolcall.dev"}, Resources: []string{"toolcalls"}, Verbs: []string{"get", "list", "watch"}},
	}}, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	f.Eventually("permission of "+user, func() bool { return f.Run("get", "c", "--as", user).Code == 0 })
	f.Run("logs", "c", "--as", user).Expect(t, 1, "it needs permission to get toolcalls/log", "the ClusterRoles toolcall-viewer and toolcall-user grant")
	f.Run("logs", "none").Expect(t, 1, `call none not found in namespace "`+f.Namespace)
	f.Run("logs", "c", "--stream", "all").Expect(t, 1, "--stream=all: must be stdout or stderr")
	f.Run("logs", "c", "--offset", "-1").Expect(t, 1, "--offset -1: must not be negative")
	f.Run("logs", "c", "--limit", "0").Expect(t, 1, "--limit 0: must be at least 1")
	f.Run("logs", "c", "--offset", "7").Expect(t, 1, "the stream has no byte at offset 7: it has 6 bytes")
	f.Detached("lost")
	f.End("lost", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonPodLost, RetrySafe: ptr.To(false)})
	f.Run("logs", "lost").Expect(t, 1, "is not kept", "kubectl toolcall describe lost")
}

// toolcall-viewer and toolcall-user are enough to read output, and neither may read the logs of pods.
func TestRolesReadOutputWithoutLogsOfPods(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"toolcall-viewer", "toolcall-user"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			f := plugintest.New(t)
			f.Detached("c")
			f.End("c", plugintest.WithOutput(plugintest.Succeeded(), "out\n", ""))
			user := f.User([]string{role}, "ls")
			f.Eventually("rights of "+user, func() bool { return f.Run("logs", "c", "--as", user).Out == "out\n" })
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: f.Namespace, Verb: "get", Resource: "pods", Subresource: "log"},
			}}
			f.Make(review)
			if review.Status.Allowed {
				t.Error("the role grants pods/log")
			}
		})
	}
}

func TestWaitPrintsOutcomes(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	for _, name := range []string{"good", "bad", "late", "denied"} {
		f.Detached(name)
	}
	f.End("good", plugintest.Succeeded())
	f.End("bad", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: "NonZeroExit", ExitCode: ptr.To(int32(9)), DurationMilliseconds: ptr.To(int64(61500))})
	f.End("denied", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: "CodeDisabled"})
	const seeDenied = "call denied: for what to do, see docs/troubleshooting.md#codedisabled\n"
	for line, want := range map[string]plugintest.Printed{
		"good":              {Out: "good Succeeded Completed exit 0 after 7ms\n"},
		"bad":               {Out: "bad Failed NonZeroExit exit 9 after 1m2s\n", Code: 9},
		"good denied bad":   {Out: "good Succeeded Completed exit 0 after 7ms\ndenied Denied CodeDisabled\nbad Failed NonZeroExit exit 9 after 1m2s\n", Err: seeDenied, Code: 126},
		"bad denied":        {Out: "bad Failed NonZeroExit exit 9 after 1m2s\ndenied Denied CodeDisabled\n", Err: seeDenied, Code: 9},
		"good --timeout 1m": {Out: "good Succeeded Completed exit 0 after 7ms\n"},
	} {
		if got := f.Run(append([]string{"wait"}, strings.Fields(line)...)...); got != want {
			t.Errorf("wait %s: %+v", line, got)
		}
	}
	f.Run("wait", "late", "good", "--timeout", "100ms").Expect(t, 125, "call late did not finish within --timeout")
	f.Run("wait", "none", "bad").Expect(t, 125, "wait for call none", "bad Failed")
	f.Run("wait", "toolcall.toolcall.dev/good", "..", "bad").Expect(t, 125, "may not contain '/'", "may not be '..'", "bad Failed")
}

// What fails at first is waited for, and said once.
func TestWaitOutlastsAnAPIServerThatIsAway(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	for _, name := range []string{"a", "b"} {
		f.Detached(name)
		f.End(name, plugintest.Succeeded())
	}
	var refused atomic.Int32
	config := f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Query().Has("watch") && refused.Add(1) <= 2 {
			plugintest.Refuse(w, http.StatusServiceUnavailable, "ServiceUnavailable", "restarting")
			return
		}
		next.ServeHTTP(w, r)
	})
	out, errs, code := plugintest.Run("", "--kubeconfig", config, "-n", f.Namespace, "wait", "a", "b")
	if code != 0 || strings.Count(out, "Succeeded") != 2 || !strings.Contains(errs, "restarting") ||
		strings.Count(errs, "note: the watch of the call failed, retrying") != 1 {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
}

func TestCancelRequestsCancellation(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("a")
	f.Detached("b")
	f.Run("cancel", "a", "none", "b").Expect(t, 1, "a: cancellation requested b: cancellation requested", "call none not found")
	if !f.Call("a").Spec.Cancel || !f.Call("b").Spec.Cancel {
		t.Error("a call was not cancelled")
	}
	f.Run("cancel", "a").Expect(t, 0, "a: cancellation requested")
	f.Run("cancel", "a", "--as", "nobody").Expect(t, 1, "you need permission to patch toolcalls", "toolcall-user", "cancel call "+f.Namespace+"/a")
}

func TestPrefixedLines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pieces []string
		want   string
	}{
		"nothing":                  {nil, ""},
		"a line in pieces":         {[]string{"a", "b", "c\n"}, "[x] abc\n"},
		"several lines at once":    {[]string{"a\nb\nc"}, "[x] a\n[x] b\n[x] c\n"},
		"empty lines":              {[]string{"\n", "\n"}, "[x] \n[x] \n"},
		"a line that is very long": {[]string{strings.Repeat("y", maxPrefixedLine), "z\n"}, "[x] " + strings.Repeat("y", maxPrefixedLine) + "\n[x] z\n"},
	} {
		var out bytes.Buffer
		w := &prefixWriter{out: &out, prefix: "[x] "}
		for _, piece := range c.pieces {
			if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
				t.Errorf("%s: %d, %v", name, n, err)
			}
		}
		if err := w.end(); err != nil || out.String() != c.want {
			t.Errorf("%s: %v, %.80q, want %.80q", name, err, out.String(), c.want)
		}
	}
	if _, err := (&prefixWriter{out: plugintest.BrokenPipe}).Write([]byte("x\n")); err == nil {
		t.Error("a failed write is lost")
	}
}

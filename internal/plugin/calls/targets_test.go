package calls

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func cancelled() v1alpha1.ToolCallStatus {
	return v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseCancelled, Reason: v1alpha1.ReasonCancelRequested}
}

// Names, a selector or --all: exactly one of them, for every command that works on several calls.
func TestWaysToChooseCalls(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"wait", "cancel", "delete", "logs"} {
		for arguments, want := range map[string]string{
			"":           "specify the names of the calls, -l LABEL=VALUE or --all",
			"a ":         "specify the names of the calls, -l LABEL=VALUE or --all",
			"a --all":    "names can't be used together with -l or --all",
			"a -l b=c":   "names can't be used together with -l or --all",
			"--all -l a": "-l and --all can't be used together",
			"-l a=b=c":   `--selector "a=b=c": must be a label selector, e.g. team=search`,
		} {
			f := append([]string{command}, strings.Fields(arguments)...)
			if arguments == "a " {
				f = append(f, "") // As "a $B" says where the variable is empty.
			}
			if out, errs, code := plugintest.CommandAt(plugintest.Offline(t), f...); code == 0 || out != "" || !strings.Contains(errs, want) {
				t.Errorf("%s %s: exit code %d, %q, %q", command, arguments, code, out, errs)
			}
		}
	}
	// As "-l $A $B" says where both variables are empty.
	for _, command := range []string{"wait", "cancel", "delete", "logs"} {
		for _, selector := range []string{" ", "  ", "\t"} {
			if out, errs, code := plugintest.CommandAt(plugintest.Offline(t), command, "-l", selector); code == 0 || out != "" || !strings.Contains(errs, "selects nothing in particular") {
				t.Errorf("%s -l %q: exit code %d, %q, %q", command, selector, code, out, errs)
			}
		}
	}
	for line, want := range map[string]string{
		"cancel a --timeout 1m":         "--timeout is for --wait",
		"cancel a --wait --timeout -1m": "--timeout -1m0s: must not be negative",
		"cancel a -o toml":              `unable to match a printer`,
		"delete a -o json":              `--output "json": must be name`,
		"delete a --finished":           "--finished is for -l and --all",
		"logs a --tail -2":              "--tail -2: must be a number of lines, or -1 for all",
		"logs a --tail 2 --offset 1":    "--tail can't be used together with --offset or --limit",
		"logs a --since 0s":             "--since 0s: must be how long ago",
	} {
		if out, errs, code := plugintest.CommandAt(plugintest.Offline(t), strings.Fields(line)...); code != 1 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %q, %q", line, code, out, errs)
		}
	}
}

func TestWaitForSelectedCalls(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Labelled("first", "job=a")
	f.Labelled("second", "job=a")
	f.Labelled("third", "job=b")
	f.End("first", plugintest.Succeeded())
	f.End("second", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: "ShellDisabled"})
	got := f.Run("wait", "-l", "job=a")
	got.Expect(t, 126, "first Succeeded Completed", "second Denied ShellDisabled")
	if strings.Contains(got.Out, "third") {
		t.Errorf("another call is waited for: %s", got.Out)
	}
	if got := f.Run("wait", "first", "second", "-o", "jsonpath={.metadata.name}={.status.phase} "); got != (plugintest.Printed{Out: "first=Succeeded second=Denied ", Err: "call second: for what to do, see docs/troubleshooting.md#shelldisabled\n", Code: 126}) {
		t.Errorf("got %+v", got)
	}
	f.Run("wait", "first", "-o", "toml").Expect(t, 125, "unable to match a printer")
	f.Run("wait", "--all", "--timeout", "300ms").Expect(t, 126, "call third did not finish within --timeout")
	// A call that takes long hides nothing of those behind it.
	late := f.Run("wait", "third", "first", "--timeout", "300ms")
	late.Expect(t, 125, "call third did not finish within --timeout", "first Succeeded Completed")
	f.Run("wait", "-l", "job=c").Expect(t, 125, `no call in namespace "`+f.Namespace+`" matches "job=c"`)
	plugintest.New(t).Run("wait", "--all").Expect(t, 125, "has no calls: -n selects another namespace")
}

// cancel leaves finished calls alone, and with --wait says how each call ended.
func TestCancelSelectedCalls(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Labelled("done", "job=a")
	f.End("done", plugintest.Succeeded())
	f.Labelled("one", "job=a")
	f.Labelled("two", "job=a")
	f.Labelled("other", "job=b")
	f.Operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if !call.Spec.Cancel {
			return nil
		}
		return plugintest.Finished(cancelled())
	})
	got := f.Run("cancel", "-l", "job=a", "--wait")
	got.Expect(t, 0, "one: cancellation requested", "two: cancellation requested", "one Cancelled CancelRequested", "two Cancelled CancelRequested")
	if strings.Contains(got.Out, "done") || f.Call("done").Spec.Cancel || f.Call("other").Spec.Cancel {
		t.Errorf("another call was cancelled: %s", got.Out)
	}
	f.Run("cancel", "-l", "job=a").Expect(t, 0, "No calls to cancel in namespace "+f.Namespace+".")
	if got := f.Run("cancel", "--all", "--wait", "-o", "name"); got != (plugintest.Printed{Out: "toolcall.toolcall.dev/other\n"}) {
		t.Errorf("got %+v", got)
	}
	f.Run("cancel", "one", "-o", "json").Expect(t, 0, `"kind": "ToolCall"`, `"name": "one"`, `"cancel": true`)
	if got := f.Run("cancel", "one", "two", "--wait", "-o", "jsonpath={.metadata.name}={.status.phase} "); got != (plugintest.Printed{Out: "one=Cancelled two=Cancelled "}) {
		t.Errorf("got %+v", got)
	}
	f.Run("cancel", "one", "-o", "toml").Expect(t, 1, "unable to match a printer")
}

// A selection is of calls, and not of their names: one that is made under such a name meanwhile isn't cancelled.
func TestCancelLeavesWhatTookASelectedName(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Labelled("one", "job=a")
	var replaced sync.Once
	config := f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPatch {
			replaced.Do(func() {
				f.Run("delete", "one").Expect(t, 0, "one: deleted")
				f.Labelled("one", "job=a")
			})
		}
		next.ServeHTTP(w, r)
	})
	out, errs, code := plugintest.CommandAt(config, "-n", f.Namespace, "cancel", "-l", "job=a", "--wait", "--timeout", "30s")
	if code != 0 || out != "" || errs != "" || f.Call("one").Spec.Cancel {
		t.Errorf("exit code %d, %q, %q, cancelled: %t", code, out, errs, f.Call("one").Spec.Cancel)
	}
}

// A call that doesn't stop in time is an error, and so is one that can't be cancelled; the others are waited for.
func TestCancelWaitsOnlySoLong(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("stubborn")
	f.Run("cancel", "stubborn", "none", "--wait", "--timeout", "300ms").Expect(t, 1,
		"stubborn: cancellation requested", "call none not found", "call stubborn did not finish within --timeout")
}

func TestDelete(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		f.Labelled(name, "name="+name)
	}
	f.End("a", plugintest.Succeeded())
	f.End("d", plugintest.Succeeded())
	f.Run("delete", "a", "none").Expect(t, 1, "a: deleted", `call none not found in namespace "`+f.Namespace)
	f.Run("delete", "-l", "name=b", "-o", "name").Expect(t, 0, "toolcall.toolcall.dev/b")
	f.Run("delete", "--all", "--finished").Expect(t, 0, "d: deleted")
	f.Run("delete", "--all", "--finished").Expect(t, 0, "No calls to delete")
	f.Run("delete", "c", "--as", "nobody").Expect(t, 1, "you need permission to delete toolcalls", "toolcall-user")
	f.Run("delete", "--all").Expect(t, 0, "c: deleted")
	for _, name := range []string{"a", "b", "c", "d"} {
		err := f.Client.Get(t.Context(), client.ObjectKey{Namespace: f.Namespace, Name: name}, &v1alpha1.ToolCall{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("call %s is still there: %v", name, err)
		}
	}
}

// Calls that --since leaves out don't count among those that are followed at the same time.
func TestLogsFollowsWhatSinceLeaves(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Labelled("recent", "job=many")
	f.End("recent", plugintest.WithOutput(plugintest.Succeeded(), "out\n", ""))
	ended := plugintest.WithOutput(plugintest.Succeeded(), "old\n", "")
	ended.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue, Reason: ended.Reason, LastTransitionTime: metav1.NewTime(time.Now().Add(-2 * time.Hour)),
	}}
	for i := range maxFollowed {
		call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: fmt.Sprintf("old-%d", i), Labels: map[string]string{"job": "many"}}}
		call.Spec.Shell = &v1alpha1.ShellAction{Command: "true"}
		f.Make(call)
		f.End(call.Name, ended)
	}
	f.Run("logs", "-f", "-l", "job=many").Expect(t, 1, "-f follows at most 50 calls at the same time")
	if got := f.Run("logs", "-f", "-l", "job=many", "--since", "1h", "--prefix=false"); got != (plugintest.Printed{Out: "out\n"}) {
		t.Errorf("got %+v", got)
	}
}

// The lines of several calls say whose they are; those of calls that ended long ago are left out with --since.
func TestLogsOfSeveralCalls(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	for name, status := range map[string]v1alpha1.ToolCallStatus{
		"one": plugintest.WithOutput(plugintest.Succeeded(), "a\nb", ""), "two": plugintest.WithOutput(plugintest.Succeeded(), "c\n", "oops\n"),
	} {
		f.Labelled(name, "job=x")
		f.End(name, status)
	}
	got := f.Run("logs", "one", "two")
	if got != (plugintest.Printed{Out: "[one] a\n[one] b\n[two] c\n", Err: "[two] oops\n"}) {
		t.Errorf("got %+v", got)
	}
	if got := f.Run("logs", "one", "two", "--prefix=false", "--stream", "stdout"); got != (plugintest.Printed{Out: "a\nbc\n"}) {
		t.Errorf("got %+v", got)
	}
	if got := f.Run("logs", "one", "--prefix"); got != (plugintest.Printed{Out: "[one] a\n[one] b\n"}) {
		t.Errorf("got %+v", got)
	}
	f.Run("logs", "-f", "-l", "job=x", "--tail", "1").Expect(t, 0, "[one] b", "[two] c", "[two] oops")
	f.Run("logs", "one", "--since", "1h").Expect(t, 0, "a b")
	// The end of a call is recorded in whole seconds.
	f.Eventually("a second passed", func() bool { return time.Since(f.Call("one").CreationTimestamp.Time) > 3*time.Second })
	if got := f.Run("logs", "one", "--since", "1s"); got.Out != "" || !strings.Contains(got.Err, "call one ended more than 1s ago") {
		t.Errorf("got %+v", got)
	}
	if got := f.Run("logs", "--all", "--since", "1s"); got != (plugintest.Printed{Code: 0}) {
		t.Errorf("got %+v", got)
	}
	// When nobody reads any more, calls that are followed and silent don't keep the command alive.
	f.Labelled("silent", "job=z")
	var errs bytes.Buffer
	args := []string{"--kubeconfig", f.Kubeconfig, "-n", f.Namespace, "logs", "-f", "one", "silent"}
	if code := plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: plugintest.BrokenPipe, ErrOut: &errs}).Execute(args); code != cli.CodePipe {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
	f.Run("logs", "one", "none").Expect(t, 1, "[one] a", "call none not found")
	f.Run("logs", "-l", "job=y").Expect(t, 1, `matches "job=y"`)
}

// An output that isn't whole is an error, also where only a line without an end is missing.
func TestLogsOnAFullDisk(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	for name, text := range map[string]string{"lines": "a\nb", "piece": "no end", "other": "c\n"} {
		f.Labelled(name, "job=x")
		f.End(name, plugintest.WithOutput(plugintest.Succeeded(), text, ""))
	}
	for _, names := range [][]string{{"lines", "other"}, {"piece", "other"}, {"piece", "--prefix"}} {
		var errs bytes.Buffer
		args := append([]string{"--kubeconfig", f.Kubeconfig, "-n", f.Namespace, "logs"}, names...)
		code := plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: plugintest.FullDisk, ErrOut: &errs}).Execute(args)
		if code != cli.CodeError || errs.String() != "error: write the output: no space left on device\n" {
			t.Errorf("%s: exit code %d, %s", names, code, errs.String())
		}
	}
}

// A full disk doesn't keep a call that isn't there from being named.
func TestMissingCallsOnAFullDisk(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Labelled("one", "job=x")
	f.End("one", plugintest.WithOutput(plugintest.Succeeded(), "a\n", ""))
	for line, code := range map[string]int{"logs one none": 1, "get one none": 1, "get one none -o name": 1, "wait none one": 125, "wait none one -o name": 125} {
		var errs bytes.Buffer
		args := append([]string{"--kubeconfig", f.Kubeconfig, "-n", f.Namespace}, strings.Fields(line)...)
		got := plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: plugintest.FullDisk, ErrOut: &errs}).Execute(args)
		if said := errs.String(); got != code || !strings.Contains(said, "call none") || !strings.Contains(said, "no space left on device\n") {
			t.Errorf("%s: exit code %d, %s", line, got, said)
		}
	}
}

package plugin

import (
	"bytes"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// labelled creates a call with a label, without waiting for it.
func (f *fixture) labelled(name, label string) {
	f.t.Helper()
	f.run("run", "--detach", "--name", name, "-l", label, "--", "ls").expect(f.t, 0, name)
}

func cancelled() v1alpha1.ToolCallStatus {
	return v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseCancelled, Reason: v1alpha1.ReasonCancelRequested}
}

// Names, a selector or --all: exactly one of them, for every command that works on several calls.
func TestWaysToChooseCalls(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"wait", "cancel", "delete", "logs"} {
		for arguments, want := range map[string]string{
			"":           "specify the names of the calls, -l LABEL=VALUE or --all",
			"a --all":    "names can't be used together with -l or --all",
			"a -l b=c":   "names can't be used together with -l or --all",
			"--all -l a": "-l and --all can't be used together",
			"-l a=b=c":   `--selector "a=b=c": must be a label selector, e.g. team=search`,
		} {
			f := strings.Fields(command + " " + arguments)
			if out, errs, code := commandAt(offline(t), f...); code == 0 || out != "" || !strings.Contains(errs, want) {
				t.Errorf("%s %s: exit code %d, %q, %q", command, arguments, code, out, errs)
			}
		}
	}
	// As "-l $A $B" says where both variables are empty.
	for _, command := range []string{"wait", "cancel", "delete", "logs"} {
		for _, selector := range []string{" ", "  ", "\t"} {
			if out, errs, code := commandAt(offline(t), command, "-l", selector); code == 0 || out != "" || !strings.Contains(errs, "selects nothing in particular") {
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
		"env suspend a -o toml":         `unable to match a printer`,
		"logs a --tail -2":              "--tail -2: must be a number of lines, or -1 for all",
		"logs a --tail 2 --offset 1":    "--tail can't be used together with --offset or --limit",
		"logs a --since 0s":             "--since 0s: must be how long ago",
	} {
		if out, errs, code := commandAt(offline(t), strings.Fields(line)...); code != 1 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %q, %q", line, code, out, errs)
		}
	}
}

// commandAt runs a command line with a kubeconfig.
func commandAt(kubeconfig string, args ...string) (stdout, stderr string, code int) {
	return command("", append([]string{"--kubeconfig", kubeconfig}, args...)...)
}

func TestWaitForSelectedCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.labelled("first", "job=a")
	f.labelled("second", "job=a")
	f.labelled("third", "job=b")
	f.end("first", succeeded())
	f.end("second", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: "ShellDisabled"})
	got := f.run("wait", "-l", "job=a")
	got.expect(t, 126, "first Succeeded Completed", "second Denied ShellDisabled")
	if strings.Contains(got.out, "third") {
		t.Errorf("another call is waited for: %s", got.out)
	}
	if got := f.run("wait", "first", "second", "-o", "jsonpath={.metadata.name}={.status.phase} "); got != (printed{"first=Succeeded second=Denied ", "call second: for what to do, see docs/troubleshooting.md#shelldisabled\n", 126}) {
		t.Errorf("got %+v", got)
	}
	f.run("wait", "first", "-o", "toml").expect(t, 125, "unable to match a printer")
	f.run("wait", "--all", "--timeout", "300ms").expect(t, 126, "call third did not finish within --timeout")
	// A call that takes long hides nothing of those behind it.
	late := f.run("wait", "third", "first", "--timeout", "300ms")
	late.expect(t, 125, "call third did not finish within --timeout", "first Succeeded Completed")
	f.run("wait", "-l", "job=c").expect(t, 125, `no call in namespace "`+f.namespace+`" matches "job=c"`)
	newFixture(t).run("wait", "--all").expect(t, 125, "has no calls: -n selects another namespace")
}

// cancel leaves finished calls alone, and with --wait says how each call ended.
func TestCancelSelectedCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.labelled("done", "job=a")
	f.end("done", succeeded())
	f.labelled("one", "job=a")
	f.labelled("two", "job=a")
	f.labelled("other", "job=b")
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if !call.Spec.Cancel {
			return nil
		}
		return finished(cancelled())
	})
	got := f.run("cancel", "-l", "job=a", "--wait")
	got.expect(t, 0, "one: cancellation requested", "two: cancellation requested", "one Cancelled CancelRequested", "two Cancelled CancelRequested")
	if strings.Contains(got.out, "done") || f.call("done").Spec.Cancel || f.call("other").Spec.Cancel {
		t.Errorf("another call was cancelled: %s", got.out)
	}
	f.run("cancel", "-l", "job=a").expect(t, 0, "No calls to cancel in namespace "+f.namespace+".")
	if got := f.run("cancel", "--all", "--wait", "-o", "name"); got != (printed{"toolcall.toolcall.dev/other\n", "", 0}) {
		t.Errorf("got %+v", got)
	}
	f.run("cancel", "one", "-o", "json").expect(t, 0, `"kind": "ToolCall"`, `"name": "one"`, `"cancel": true`)
	if got := f.run("cancel", "one", "two", "--wait", "-o", "jsonpath={.metadata.name}={.status.phase} "); got != (printed{"one=Cancelled two=Cancelled ", "", 0}) {
		t.Errorf("got %+v", got)
	}
	f.run("cancel", "one", "-o", "toml").expect(t, 1, "unable to match a printer")
}

// A call that doesn't stop in time is an error, and so is one that can't be cancelled; the others are waited for.
func TestCancelWaitsOnlySoLong(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("stubborn")
	f.run("cancel", "stubborn", "none", "--wait", "--timeout", "300ms").expect(t, 1,
		"stubborn: cancellation requested", "call none not found", "call stubborn did not finish within --timeout")
}

func TestDelete(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		f.labelled(name, "name="+name)
	}
	f.end("a", succeeded())
	f.end("d", succeeded())
	f.run("delete", "a", "none").expect(t, 1, "a: deleted", `call none not found in namespace "`+f.namespace)
	f.run("delete", "-l", "name=b", "-o", "name").expect(t, 0, "toolcall.toolcall.dev/b")
	f.run("delete", "--all", "--finished").expect(t, 0, "d: deleted")
	f.run("delete", "--all", "--finished").expect(t, 0, "No calls to delete")
	f.run("delete", "c", "--as", "nobody").expect(t, 1, "you need permission to delete toolcalls", "toolcall-user")
	f.run("delete", "--all").expect(t, 0, "c: deleted")
	for _, name := range []string{"a", "b", "c", "d"} {
		err := f.client.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, &v1alpha1.ToolCall{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("call %s is still there: %v", name, err)
		}
	}
}

// The lines of several calls say whose they are; those of calls that ended long ago are left out with --since.
func TestLogsOfSeveralCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, status := range map[string]v1alpha1.ToolCallStatus{
		"one": withOutput(succeeded(), "a\nb", ""), "two": withOutput(succeeded(), "c\n", "oops\n"),
	} {
		f.labelled(name, "job=x")
		f.end(name, status)
	}
	got := f.run("logs", "one", "two")
	if got != (printed{"[one] a\n[one] b\n[two] c\n", "[two] oops\n", 0}) {
		t.Errorf("got %+v", got)
	}
	if got := f.run("logs", "one", "two", "--prefix=false", "--stream", "stdout"); got != (printed{"a\nbc\n", "", 0}) {
		t.Errorf("got %+v", got)
	}
	if got := f.run("logs", "one", "--prefix"); got != (printed{"[one] a\n[one] b\n", "", 0}) {
		t.Errorf("got %+v", got)
	}
	f.run("logs", "-f", "-l", "job=x", "--tail", "1").expect(t, 0, "[one] b", "[two] c", "[two] oops")
	f.run("logs", "one", "--since", "1h").expect(t, 0, "a b")
	// The end of a call is recorded in whole seconds.
	f.eventually("a second passed", func() bool { return time.Since(f.call("one").CreationTimestamp.Time) > 3*time.Second })
	if got := f.run("logs", "one", "--since", "1s"); got.out != "" || !strings.Contains(got.err, "call one ended more than 1s ago") {
		t.Errorf("got %+v", got)
	}
	if got := f.run("logs", "--all", "--since", "1s"); got != (printed{"", "", 0}) {
		t.Errorf("got %+v", got)
	}
	// When nobody reads any more, calls that are followed and silent don't keep the command alive.
	f.labelled("silent", "job=z")
	var errs bytes.Buffer
	args := []string{"--kubeconfig", f.kubeconfig, "-n", f.namespace, "logs", "-f", "one", "silent"}
	if code := newCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: brokenPipe{}, ErrOut: &errs}).execute(args); code != codePipe {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
	f.run("logs", "one", "none").expect(t, 1, "[one] a", "call none not found")
	f.run("logs", "-l", "job=y").expect(t, 1, `matches "job=y"`)
}

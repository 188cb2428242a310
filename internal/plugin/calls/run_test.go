package calls

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// run prints what the command wrote, says why a call ended whose command did not exit by itself, and exits as it did.
func TestRunExitsAsTheCallDid(t *testing.T) {
	t.Parallel()
	failed := func(reason string, code *int32, retrySafe bool) v1alpha1.ToolCallStatus {
		return v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: reason, Message: "because of " + reason, ExitCode: code, RetrySafe: &retrySafe}
	}
	for name, c := range map[string]struct {
		status   v1alpha1.ToolCallStatus
		code     int
		out, err string
	}{
		"success":           {plugintest.WithOutput(plugintest.Succeeded(), "out\n", "err\n"), 0, "out\n", "err\n"},
		"no newline":        {plugintest.WithOutput(plugintest.Succeeded(), "out", ""), 0, "out", ""},
		"no output":         {plugintest.Succeeded(), 0, "", ""},
		"its own exit code": {plugintest.WithOutput(failed(v1alpha1.ReasonNonZeroExit, ptr.To(int32(3)), false), "out\n", ""), 3, "out\n", ""},
		"the time limit": {
			failed(v1alpha1.ReasonTimedOut, nil, false), 124, "", "call c: Failed (TimedOut): because of TimedOut\nFor what to do, see docs/troubleshooting.md#timedout\n",
		},
		"a denial": {
			v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: v1alpha1.ReasonBinaryNotAllowed, Message: "no", RetrySafe: ptr.To(true)}, 126, "",
			"call c: Denied (BinaryNotAllowed): no\nTo see what the policy allows, run: kubectl toolcall explain-denial c -n NAMESPACE\n",
		},
		"a pod that never started": {
			failed(v1alpha1.ReasonImagePullFailed, nil, true), 125, "",
			"call c: Failed (ImagePullFailed): because of ImagePullFailed\nThe command never started, so it is safe to run it again.\n" +
				"For what to do, see docs/troubleshooting.md#imagepullfailed\n",
		},
		"a lost pod":     {failed(v1alpha1.ReasonPodLost, nil, false), 125, "", "call c: Failed (PodLost): because of PodLost\nFor what to do, see docs/troubleshooting.md#podlost\n"},
		"a cancellation": {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseCancelled, Reason: v1alpha1.ReasonCancelRequested}, 130, "", "call c: Cancelled (CancelRequested): \n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := plugintest.New(t)
			f.Operate(func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus { return plugintest.Finished(c.status) })
			got := f.Run("run", "--quiet", "--name", "c", "--", "ls")
			if want := strings.ReplaceAll(c.err, "NAMESPACE", f.Namespace); got.Code != c.code || got.Out != c.out || got.Err != want {
				t.Errorf("exit code %d, %q, %q; want %d, %q, %q", got.Code, got.Out, got.Err, c.code, c.out, want)
			}
		})
	}
}

// With -o, run prints the finished object and nothing of the output.
func TestRunPrintsTheFinishedObject(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Operate(func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		return plugintest.Finished(plugintest.WithOutput(v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonNonZeroExit, ExitCode: ptr.To(int32(4))}, "out\n", "err\n"))
	})
	got := f.Run("run", "-q", "-o", "yaml", "--name", "c", "--", "ls")
	call := &v1alpha1.ToolCall{}
	if err := yaml.UnmarshalStrict([]byte(got.Out), call); err != nil || got.Code != 4 || got.Err != "" || call.Status.Stdout != "out\n" || call.Kind != "ToolCall" {
		t.Errorf("exit code %d, %v\n%s%s", got.Code, err, got.Out, got.Err)
	}
	f.Run("run", "-q", "-o", "jsonpath={.status.exitCode} {.status.stderr}", "--", "ls").Expect(t, 4, "4 err")
	f.Run("run", "-q", "-o", "name", "--name", "d", "--", "ls").Expect(t, 4, "toolcall.toolcall.dev/d")
}

// A detached call is created, named and left alone.
func TestRunDetached(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	got := f.Run("run", "--detach", "-l", "team=search", "--shell", "sleep 600")
	name := strings.TrimSpace(got.Out)
	if got.Code != 0 || got.Err != "" || !strings.HasPrefix(name, "run-") {
		t.Fatalf("exit code %d, %q, %q", got.Code, got.Out, got.Err)
	}
	if call := f.Call(name); call.Spec.Cancel || call.Labels["team"] != "search" || call.Spec.RequestedBy.Username != "admin" {
		t.Errorf("got %+v", call)
	}
	f.Run("run", "--detach", "-o", "jsonpath={.spec.shell.command}", "--shell", "sleep 600").Expect(t, 0, "sleep 600")
}

// A dry run creates nothing, whoever validates the call.
func TestDryRunsCreateNothing(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Run("run", "--dry-run", "--", "ls").Expect(t, 0, "kind: ToolCall", "binary: ls", "generateName: run-")
	f.Run("run", "--dry-run=server", "--", "ls").Expect(t, 0, "username: admin", "name: run-")
	f.Run("run", "--dry-run=server", "--name", "Not_Valid", "--", "ls").Expect(t, 125, "the API server rejected the call")
	list := &v1alpha1.ToolCallList{}
	if err := f.Client.List(t.Context(), list, client.InNamespace(f.Namespace)); err != nil || len(list.Items) > 0 {
		t.Errorf("%d calls, %v", len(list.Items), err)
	}
}

// Output is shown while the call runs; the status completes it, and nothing comes twice.
func TestRunShowsLiveOutput(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	shown := make(chan struct{})
	f.Operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if call.Status.Phase == "" {
			f.Writing(call, "one\n")
			return plugintest.Running("pod")
		}
		<-shown
		return plugintest.Finished(plugintest.WithOutput(plugintest.Succeeded(), "one\ntwo\n", ""))
	})
	out := &signalWriter{wrote: make(chan struct{}, 100)}
	code := make(chan int, 1)
	go func() {
		args := []string{"--kubeconfig", f.Kubeconfig, "-n", f.Namespace, "run", "--quiet", "--", "ls"}
		code <- plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out}).Execute(args)
	}()
	<-out.wrote
	close(shown)
	if got := <-code; got != 0 || out.String() != "one\ntwo\n" {
		t.Errorf("exit code %d, %q", got, out.String())
	}
}

// signalWriter signals each write.
type signalWriter struct {
	bytes.Buffer
	wrote chan struct{}
}

func (s *signalWriter) Write(p []byte) (int, error) {
	defer func() { s.wrote <- struct{}{} }()
	return s.Buffer.Write(p)
}

// When the output can't be written any more, the call is cancelled. The exit code is that of a broken pipe where nobody reads it, and an
// error says so where there is no place for it.
func TestRunCancelsWhenOutputCannotBeWritten(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		out  io.Writer
		code int
		want string
	}{
		"nobody reads": {plugintest.BrokenPipe, cli.CodePipe, "nobody reads the output any more: cancelling call c"},
		"a full disk":  {plugintest.FullDisk, cli.CodeFailed, "write the output: no space left on device: cancelling call c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := plugintest.New(t)
			f.Operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
				switch {
				case call.Spec.Cancel:
					return plugintest.Finished(cancelled())
				case call.Status.Phase == "":
					f.Writing(call, "line\n")
					return plugintest.Running("pod")
				default:
					return nil
				}
			})
			var errs bytes.Buffer
			args := []string{"--kubeconfig", f.Kubeconfig, "-n", f.Namespace, "run", "--live=always", "--name", "c", "--", "yes"}
			code := plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: c.out, ErrOut: &errs}).Execute(args)
			if code != c.code || !strings.Contains(errs.String(), c.want) || !f.Call("c").Spec.Cancel {
				t.Errorf("exit code %d, %s", code, errs.String())
			}
		})
	}
}

// A name or an object that can't be written is said, or shows in the exit code where nobody reads it.
func TestNamesAndObjectsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Operate(func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus { return plugintest.Finished(plugintest.Succeeded()) })
	for line, failed := range map[string]int{
		"run -q --detach -- ls": 125, "run -q --detach -o name -- ls": 125, "run -q -o json -- ls": 125, "run -q -o jsonpath={.status} -- ls": 125,
		"run --dry-run -o name -- ls": 125, "get -o name": 1, "get -o yaml": 1, "get -o go-template={{.kind}}": 1,
	} {
		execute := func(out io.Writer) (code int, said string) {
			var errs bytes.Buffer
			args := append([]string{"--kubeconfig", f.Kubeconfig, "-n", f.Namespace}, strings.Fields(line)...)
			code = plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: &errs}).Execute(args)
			return code, errs.String()
		}
		if code, said := execute(plugintest.BrokenPipe); code != cli.CodePipe || said != "" {
			t.Errorf("%s for nobody: exit code %d, %s", line, code, said)
		}
		if code, said := execute(plugintest.FullDisk); code != failed || said != "error: write the output: no space left on device\n" {
			t.Errorf("%s on a full disk: exit code %d, %s", line, code, said)
		}
	}
}

// An interrupt cancels the call and shows its end; a second one leaves it.
func TestInterruptsOfARunningCall(t *testing.T) {
	t.Parallel()
	for name, interrupts := range map[string]int{"one": 1, "two": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := plugintest.New(t)
			cancelled := make(chan struct{})
			f.Operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
				if !call.Spec.Cancel {
					return nil
				}
				if interrupts == 1 {
					return plugintest.Finished(v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseCancelled, Reason: v1alpha1.ReasonCancelRequested})
				}
				close(cancelled)
				return nil
			})
			f.Run("run", "--detach", "--name", "c", "--", "sleep").Expect(t, 0)
			var out, errs bytes.Buffer
			c := plugintest.TestCLI(genericiooptions.IOStreams{Out: &out, ErrOut: &errs})
			*c.Flags.KubeConfig, *c.Flags.Namespace = f.Kubeconfig, f.Namespace
			cluster, err := c.Connect()
			if err != nil {
				t.Fatal(err)
			}
			signals := make(chan os.Signal, 2)
			i := NewInterrupts(t.Context(), signals, &errs)
			defer i.Close()
			go func() {
				signals <- os.Interrupt
				if interrupts == 2 {
					<-cancelled
					signals <- os.Interrupt
				}
			}()
			done, err := Wait(cluster, f.Call("c"), noDisplay(c), i)
			var exit *cli.ExitError
			if interrupts == 1 && (err != nil || done.Status.Phase != v1alpha1.PhaseCancelled) {
				t.Errorf("got %v, %v", done, err)
			}
			if interrupts == 2 && (!errors.As(err, &exit) || exit.Code != cli.CodeCancelled || !strings.Contains(err.Error(), "kubectl toolcall wait c -n "+f.Namespace)) {
				t.Errorf("got %v", err)
			}
			if !strings.Contains(errs.String(), "interrupted: cancelling call c; press Ctrl-C again") {
				t.Errorf("messages: %s", errs.String())
			}
		})
	}
}

// The request that creates a call isn't cut off by Ctrl-C: the API server may have stored it, and nobody would cancel the call.
func TestAnInterruptOfTheRequestThatCreates(t *testing.T) {
	// Not in parallel: the signal is the process's.
	f := plugintest.New(t)
	f.Operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if !call.Spec.Cancel {
			return nil
		}
		return plugintest.Finished(cancelled())
	})
	config := f.Proxied(interruptCreation(t))
	for name, args := range map[string][]string{"followed": nil, "detached": {"--detach"}} {
		args = append([]string{"-n", f.Namespace, "run", "--name", name}, args...)
		out, errs, code := plugintest.CommandAt(config, append(args, "--", "sleep")...)
		if code != cli.CodeCancelled || out != "" || !strings.Contains(errs, "interrupted: cancelling call "+name) || !f.Call(name).Spec.Cancel {
			t.Errorf("%s: exit code %d, %s%s", name, code, out, errs)
		}
	}
}

// interruptCreation sends an interrupt after a call is stored and before that is answered.
func interruptCreation(t *testing.T) func(w http.ResponseWriter, r *http.Request, next http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
		select {
		case <-r.Context().Done():
		case <-time.After(200 * time.Millisecond):
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}
}

// A call that is deleted while run follows it is an error.
func TestRunOfADeletedCall(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if err := f.Client.Delete(context.Background(), call); err != nil {
			t.Error(err)
		}
		return nil
	})
	f.Run("run", "--name", "c", "--", "ls").Expect(t, 125, "follow call c: the call was deleted before it finished")
}

// The name comes on standard error before anything else, so that a call whose follower is killed can be found.
func TestRunNamesTheCall(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Operate(func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		return plugintest.Finished(plugintest.WithOutput(plugintest.Succeeded(), "out\n", "err\n"))
	})
	if got := f.Run("run", "--name", "c", "--", "ls"); got != (plugintest.Printed{Out: "out\n", Err: "call c created\nerr\n"}) {
		t.Errorf("got %+v", got)
	}
	if got := f.Run("run", "-q", "--name", "d", "--", "ls"); got != (plugintest.Printed{Out: "out\n", Err: "err\n"}) {
		t.Errorf("got %+v", got)
	}
	got := f.Run("run", "--", "ls")
	name, _, _ := strings.Cut(strings.TrimPrefix(got.Err, "call "), " created")
	if f.Call(name).Spec.Structured.Binary != "ls" {
		t.Errorf("%q isn't the call's name", name)
	}
}

// A rerun does what the finished call did, under another name, for whoever asks for it, and says of which call it is.
func TestRerun(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Environment("tools", true)
	f.Run("run", "--detach", "--name", "nightly", "-l", "team=search", "-e", "A=1", "-w", "/tmp", "--network-host", "a.example.com", "--timeout", "30s", "--environment", "tools", "--shell", "make").Expect(t, 0)
	f.Run("rerun", "nightly").Expect(t, 125, "call nightly has not finished", "kubectl toolcall attach nightly")
	f.Run("cancel", "nightly").Expect(t, 0)
	f.End("nightly", cancelled())
	f.Operate(func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		return plugintest.Finished(plugintest.WithOutput(v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonNonZeroExit, ExitCode: ptr.To(int32(3))}, "again\n", ""))
	})
	user := f.User([]string{"toolcall-user"}, "bash")
	got := f.Run("rerun", "nightly", "--name", "second", "--as", user)
	if got != (plugintest.Printed{Out: "again\n", Err: "call second created, a rerun of nightly\n", Code: 3}) {
		t.Errorf("got %+v", got)
	}
	old, rerun := f.Call("nightly"), f.Call("second")
	if rerun.Spec.RequestedBy.Username != user || rerun.Labels["team"] != "search" {
		t.Errorf("got %+v", rerun)
	}
	old.Spec.RequestedBy, rerun.Spec.RequestedBy, old.Spec.Cancel = nil, nil, false
	if diff := cmp.Diff(old.Spec, rerun.Spec); diff != "" {
		t.Error(diff)
	}
	f.Run("describe", "second").Expect(t, 0, "Rerun of: nightly")
	f.Run("rerun", "nightly", "--dry-run", "-o", "yaml").Expect(t, 0, "generateName: nightly-", "command: make", "network: hosts: - a.example.com")
	detached := f.Run("rerun", "nightly", "--detach")
	if name := strings.TrimSpace(detached.Out); !strings.HasPrefix(name, "nightly-") || detached.Err != "call "+name+" created, a rerun of nightly\n" {
		t.Errorf("got %+v", detached)
	}
	f.Run("rerun", "none").Expect(t, 125, "call none not found")
	f.Run("rerun", "nightly", "--name", "second").Expect(t, 125, "a call with a given name runs at most once")
}

// A call of a session isn't run in another session of the same name, whose files are others.
func TestRerunInASession(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	s := f.ReadySession("dev")
	f.Run("run", "--session", "dev", "--detach", "--name", "c", "--", "ls").Expect(t, 0)
	f.End("c", plugintest.Succeeded())
	f.Run("rerun", "c", "--detach", "--name", "again").Expect(t, 0, "again")
	if ref := f.Call("again").Spec.SessionRef; ref.UID != string(s.UID) {
		t.Errorf("the session is %+v", ref)
	}
	if err := f.Client.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	f.Run("rerun", "c", "--detach").Expect(t, 125, "session dev not found")
	f.ReadySession("dev")
	f.Run("rerun", "c", "--detach").Expect(t, 125, "the session that call c ran in is gone, and session dev is another one")
}

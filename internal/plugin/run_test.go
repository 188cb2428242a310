package plugin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
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
		"success":           {withOutput(succeeded(), "out\n", "err\n"), 0, "out\n", "err\n"},
		"no newline":        {withOutput(succeeded(), "out", ""), 0, "out", ""},
		"no output":         {succeeded(), 0, "", ""},
		"its own exit code": {withOutput(failed(v1alpha1.ReasonNonZeroExit, ptr.To(int32(3)), false), "out\n", ""), 3, "out\n", ""},
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
			f := newFixture(t)
			f.operate(func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus { return finished(c.status) })
			got := f.run("run", "--quiet", "--name", "c", "--", "ls")
			if want := strings.ReplaceAll(c.err, "NAMESPACE", f.namespace); got.code != c.code || got.out != c.out || got.err != want {
				t.Errorf("exit code %d, %q, %q; want %d, %q, %q", got.code, got.out, got.err, c.code, c.out, want)
			}
		})
	}
}

// With -o, run prints the finished object and nothing of the output.
func TestRunPrintsTheFinishedObject(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		return finished(withOutput(v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonNonZeroExit, ExitCode: ptr.To(int32(4))}, "out\n", "err\n"))
	})
	got := f.run("run", "-q", "-o", "yaml", "--name", "c", "--", "ls")
	call := &v1alpha1.ToolCall{}
	if err := yaml.UnmarshalStrict([]byte(got.out), call); err != nil || got.code != 4 || got.err != "" || call.Status.Stdout != "out\n" || call.Kind != "ToolCall" {
		t.Errorf("exit code %d, %v\n%s%s", got.code, err, got.out, got.err)
	}
	f.run("run", "-q", "-o", "jsonpath={.status.exitCode} {.status.stderr}", "--", "ls").expect(t, 4, "4 err")
	f.run("run", "-q", "-o", "name", "--name", "d", "--", "ls").expect(t, 4, "toolcall.toolcall.dev/d")
}

// A detached call is created, named and left alone.
func TestRunDetached(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := f.run("run", "--detach", "-l", "team=search", "--shell", "sleep 600")
	name := strings.TrimSpace(got.out)
	if got.code != 0 || got.err != "" || !strings.HasPrefix(name, "run-") {
		t.Fatalf("exit code %d, %q, %q", got.code, got.out, got.err)
	}
	if call := f.call(name); call.Spec.Cancel || call.Labels["team"] != "search" || call.Spec.RequestedBy.Username != "admin" {
		t.Errorf("got %+v", call)
	}
	f.run("run", "--detach", "-o", "jsonpath={.spec.shell.command}", "--shell", "sleep 600").expect(t, 0, "sleep 600")
}

// A dry run creates nothing, whoever validates the call.
func TestDryRunsCreateNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.run("run", "--dry-run", "--", "ls").expect(t, 0, "kind: ToolCall", "binary: ls", "generateName: run-")
	f.run("run", "--dry-run=server", "--", "ls").expect(t, 0, "username: admin", "name: run-")
	f.run("run", "--dry-run=server", "--name", "Not_Valid", "--", "ls").expect(t, 125, "the API server rejected the call")
	list := &v1alpha1.ToolCallList{}
	if err := f.client.List(t.Context(), list, client.InNamespace(f.namespace)); err != nil || len(list.Items) > 0 {
		t.Errorf("%d calls, %v", len(list.Items), err)
	}
}

// Output is shown while the call runs; the status completes it, and nothing comes twice.
func TestRunShowsLiveOutput(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shown := make(chan struct{})
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if call.Status.Phase == "" {
			f.writing(call, "one\n")
			return running("pod")
		}
		<-shown
		return finished(withOutput(succeeded(), "one\ntwo\n", ""))
	})
	out := &signalWriter{wrote: make(chan struct{}, 100)}
	code := make(chan int, 1)
	go func() {
		args := []string{"--kubeconfig", f.kubeconfig, "-n", f.namespace, "run", "--quiet", "--", "ls"}
		code <- newCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out}).execute(args)
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

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// When nobody reads the output any more, the call is cancelled, and the exit code is that of a broken pipe.
func TestRunCancelsWhenNobodyReads(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		switch {
		case call.Spec.Cancel:
			return finished(v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseCancelled, Reason: v1alpha1.ReasonCancelRequested})
		case call.Status.Phase == "":
			f.writing(call, "line\n")
			return running("pod")
		default:
			return nil
		}
	})
	var errs bytes.Buffer
	args := []string{"--kubeconfig", f.kubeconfig, "-n", f.namespace, "run", "--live=always", "--name", "c", "--", "yes"}
	code := newCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: brokenPipe{}, ErrOut: &errs}).execute(args)
	if code != codePipe || !strings.Contains(errs.String(), "nobody reads the output any more: cancelling call c") || !f.call("c").Spec.Cancel {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
}

// An interrupt cancels the call and shows its end; a second one leaves it.
func TestInterruptsOfARunningCall(t *testing.T) {
	t.Parallel()
	for name, interrupts := range map[string]int{"one": 1, "two": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			cancelled := make(chan struct{})
			f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
				if !call.Spec.Cancel {
					return nil
				}
				if interrupts == 1 {
					return finished(v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseCancelled, Reason: v1alpha1.ReasonCancelRequested})
				}
				close(cancelled)
				return nil
			})
			f.run("run", "--detach", "--name", "c", "--", "sleep").expect(t, 0)
			var out, errs bytes.Buffer
			c := newCLI(genericiooptions.IOStreams{Out: &out, ErrOut: &errs})
			*c.flags.KubeConfig, *c.flags.Namespace = f.kubeconfig, f.namespace
			cluster, err := c.connect()
			if err != nil {
				t.Fatal(err)
			}
			signals := make(chan os.Signal, 2)
			i := newInterrupts(t.Context(), signals)
			defer i.close()
			go func() {
				signals <- os.Interrupt
				if interrupts == 2 {
					<-cancelled
					signals <- os.Interrupt
				}
			}()
			done, err := c.wait(cluster, f.call("c"), noDisplay(c), i)
			var exit *exitError
			if interrupts == 1 && (err != nil || done.Status.Phase != v1alpha1.PhaseCancelled) {
				t.Errorf("got %v, %v", done, err)
			}
			if interrupts == 2 && (!errors.As(err, &exit) || exit.code != codeCancelled || !strings.Contains(err.Error(), "kubectl toolcall wait c -n "+f.namespace)) {
				t.Errorf("got %v", err)
			}
			if !strings.Contains(errs.String(), "interrupted: cancelling call c; press Ctrl-C again") {
				t.Errorf("messages: %s", errs.String())
			}
		})
	}
}

// A call that is deleted while run follows it is an error.
func TestRunOfADeletedCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if err := f.client.Delete(context.Background(), call); err != nil {
			t.Error(err)
		}
		return nil
	})
	f.run("run", "--name", "c", "--", "ls").expect(t, 125, "follow call c: the call was deleted before it finished")
}

// The name comes on standard error before anything else, so that a call whose follower is killed can be found.
func TestRunNamesTheCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		return finished(withOutput(succeeded(), "out\n", "err\n"))
	})
	if got := f.run("run", "--name", "c", "--", "ls"); got != (printed{"out\n", "call c created\nerr\n", 0}) {
		t.Errorf("got %+v", got)
	}
	if got := f.run("run", "-q", "--name", "d", "--", "ls"); got != (printed{"out\n", "err\n", 0}) {
		t.Errorf("got %+v", got)
	}
	got := f.run("run", "--", "ls")
	name, _, _ := strings.Cut(strings.TrimPrefix(got.err, "call "), " created")
	if f.call(name).Spec.Structured.Binary != "ls" {
		t.Errorf("%q isn't the call's name", name)
	}
}

// --env could mean an environment or a variable, so it is refused with both, wherever variables can be set.
func TestEnvFlagIsRefused(t *testing.T) {
	t.Parallel()
	const want = "error: --env could mean two things: to choose the environment of a call or a new session, use --environment NAME; to set a variable, use -e NAME=VALUE\n"
	for _, line := range []string{
		"run --env tools -- ls", "run --env A=1 -- ls", "run --env=tools -- ls", "run --env", "check --env tools -- ls", "session start --env tools",
		"session exec dev --env A=1 -- ls", "session shell dev --env A=1",
	} {
		if out, errs, code := command("", strings.Fields(line)...); code == 0 || out != "" || errs != want {
			t.Errorf("%s: exit code %d, %q, %q", line, code, out, errs)
		}
	}
	if out, _, _ := command("", "run", "--help"); strings.Contains(out, "--env ") || !strings.Contains(out, "--environment") {
		t.Errorf("the help names --env: %s", out)
	}
}

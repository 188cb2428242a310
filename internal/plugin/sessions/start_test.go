package sessions

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestFlagsBecomeASession(t *testing.T) {
	t.Parallel()
	config := plugintest.Offline(t)
	full := v1alpha1.ToolSessionSpec{
		EnvironmentRef: &v1alpha1.LocalReference{Name: "repo"}, SkillRef: &v1alpha1.LocalReference{Name: "review"}, WorkingDir: "/workspace/x",
		Env:                []v1alpha1.CallEnvVar{{Name: "A", Value: "1=2"}, {Name: "B"}},
		Workspace:          &v1alpha1.SessionWorkspace{Size: plugintest.ResourceOf("10Gi"), StorageClassName: ptr.To("fast"), Retain: v1alpha1.RetainKeep},
		IdleTimeoutSeconds: ptr.To(int32(0)), MaxLifetimeSeconds: ptr.To(int32(3600)), TTLSecondsAfterEnded: ptr.To(int32(60)),
		MaxConcurrentCalls: ptr.To(int32(4)), MaxCalls: ptr.To(int32(7)),
	}
	for line, want := range map[string]v1alpha1.ToolSessionSpec{
		"":                {},
		"--workspace 1Gi": {Workspace: &v1alpha1.SessionWorkspace{Size: plugintest.ResourceOf("1Gi")}},
		"--environment repo --skill review -w /workspace/x -e A=1=2 -e B= --workspace 10Gi --storage-class fast --retain Keep --idle-timeout 0s " +
			"--max-lifetime 1h --ttl 1m --max-concurrent-calls 4 --max-calls 7": full,
	} {
		out, errs, code := plugintest.Run("", append([]string{"--kubeconfig", config, "session", "start", "dev", "-l", "a=b", "--dry-run"}, strings.Fields(line)...)...)
		session := &v1alpha1.ToolSession{}
		if code != 0 || yaml.UnmarshalStrict([]byte(out), session) != nil {
			t.Fatalf("%s: exit code %d, %s%s", line, code, out, errs)
		}
		if diff := cmp.Diff(want, session.Spec); diff != "" || session.Name != "dev" || session.Namespace != "agents" || session.Labels["a"] != "b" || session.Kind != "ToolSession" {
			t.Errorf("%s (-want +got):\n%s%s", line, diff, out)
		}
	}
	out, _, _ := plugintest.Run("", "--kubeconfig", config, "session", "start", "--dry-run")
	if !strings.Contains(out, "generateName: session-") {
		t.Errorf("no name is generated: %s", out)
	}
}

func TestInvalidFlagsOfASession(t *testing.T) {
	t.Parallel()
	config := plugintest.Offline(t)
	for line, want := range map[string]string{
		"--workspace big":                   `--workspace "big": must be a size, for example 10Gi`,
		"--workspace 0":                     "must be a size",
		"--retain Keep":                     "can only be used with --workspace SIZE",
		"--storage-class fast":              "can only be used with --workspace SIZE",
		"--workspace 1Gi --retain Always":   "must be Delete or Keep",
		"--idle-timeout 1500ms":             "must be whole seconds",
		"--max-lifetime -1s":                "must be whole seconds",
		"--ttl 1ms":                         "must be whole seconds",
		"-e A":                              "NAME=VALUE",
		"--dry-run=maybe":                   "client, server or none",
		"--dry-run --detach":                "a dry run creates no session",
		"--timeout -1s":                     "must not be negative",
		"a b":                               "session exec NAME -- PROGRAM",
		"--dry-run -o toml":                 "yaml",
		"--environment=":                    "--environment: give a name, or leave the flag out",
		"--skill=":                          "--skill: give a name, or leave the flag out",
		"--max-calls many":                  `--max-calls "many": must be a whole number`,
		"--request-timeout 2s --timeout 1m": "connection refused",
	} {
		out, errs, code := plugintest.Run("", append([]string{"--kubeconfig", config, "session", "start"}, strings.Fields(line)...)...)
		if code != cli.CodeError || out != "" || !strings.HasPrefix(errs, "error: ") || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %q, %q", line, code, out, errs)
		}
	}
	// As "$NAME" says where the variable is empty.
	if out, errs, code := plugintest.CommandAt(config, "session", "start", "", "--dry-run"); code != cli.CodeError || out != "" || !strings.Contains(errs, "the name is empty") {
		t.Errorf("an empty name: exit code %d, %q, %q", code, out, errs)
	}
}

// start prints the name alone on standard output, so that a script can use it, and the rest on standard error.
func TestSessionStart(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.OperateSessions(func(s *v1alpha1.ToolSession) bool {
		if s.Status.Phase != "" {
			return false
		}
		s.Status.Phase, s.Status.Timings = v1alpha1.SessionReady, &v1alpha1.SessionTimingsStatus{ReadyMilliseconds: ptr.To(int64(1200))}
		return true
	})
	got := f.Run("session", "start", "dev")
	want := "session dev is ready after 1.2s. To use it, run:\n  kubectl toolcall session exec dev -n NS -- PROGRAM\n  kubectl toolcall session shell dev -n NS\n  kubectl toolcall session end dev -n NS\n"
	if got != (plugintest.Printed{Out: "dev\n", Err: strings.ReplaceAll(want, "NS", f.Namespace)}) {
		t.Errorf("got %+v", got)
	}
	quiet := f.Run("session", "start", "--quiet")
	if name := strings.TrimSpace(quiet.Out); quiet.Code != 0 || quiet.Err != "" || f.GetSession(name).Spec.RequestedBy.Username != "admin" {
		t.Errorf("got %+v", quiet)
	}
	f.Run("session", "start", "two", "-o", "jsonpath={.kind} {.metadata.name} {.status.phase}").Expect(t, 0, "ToolSession two Ready")
	f.Run("session", "start", "dev").Expect(t, 1, "session "+f.Namespace+"/dev already exists: choose another name")
}

func TestSessionStartDetached(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Run("session", "start", "dev", "--detach").Expect(t, 0, "dev", "session dev is starting: calls wait until it is ready")
	if got := f.Run("session", "start", "two", "--detach", "-q"); got != (plugintest.Printed{Out: "two\n"}) {
		t.Errorf("got %+v", got)
	}
	f.Run("session", "start", "--detach", "-o", "name").Expect(t, 0, "toolsession.toolcall.dev/session-")
	f.Run("session", "start", "--dry-run=server").Expect(t, 0, "username: admin", "idleTimeoutSeconds: 900")
	f.Run("session", "start", "--max-concurrent-calls", "17").Expect(t, 1, "the API server rejected the session", "maxConcurrentCalls")
	list := &v1alpha1.ToolSessionList{}
	if err := f.Client.List(t.Context(), list, client.InNamespace(f.Namespace)); err != nil || len(list.Items) != 3 {
		t.Errorf("%d sessions, %v", len(list.Items), err)
	}
}

// While a session isn't ready, start says why.
func TestSessionStartShowsWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.OperateSessions(func(s *v1alpha1.ToolSession) bool {
		if s.Status.Phase != "" {
			return false
		}
		s.Status.Phase = v1alpha1.SessionPending
		meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonTooManySessions, Message: "3 of 3\x1b sessions run",
		})
		return true
	})
	const progress = "session dev: waiting: 3 of 3^[ sessions run\n"
	errs := &trigger{text: progress, act: func() { f.SetSession("dev", plugintest.InPhase(v1alpha1.SessionReady)) }}
	var out bytes.Buffer
	args := []string{"--kubeconfig", f.Kubeconfig, "-n", f.Namespace, "session", "start", "dev"}
	code := plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: errs}).Execute(args)
	if code != 0 || out.String() != "dev\n" || !strings.Contains(errs.String(), progress) {
		t.Errorf("exit code %d, %q, %q", code, out.String(), errs.String())
	}
}

// trigger acts once, when a text was written.
type trigger struct {
	plugintest.LockedBuffer
	text string
	act  func()
}

func (g *trigger) Write(p []byte) (int, error) {
	before := strings.Contains(g.String(), g.text)
	n, err := g.LockedBuffer.Write(p)
	if !before && strings.Contains(g.String(), g.text) {
		g.act()
	}
	return n, err
}

// A session that will never be ready is an error that says why, and not a wait for ever.
func TestSessionStartThatFails(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.OperateSessions(func(s *v1alpha1.ToolSession) bool {
		if s.Name == "gone" {
			if err := f.Client.Delete(context.Background(), s); err != nil && s.DeletionTimestamp == nil {
				t.Error(err)
			}
			return false
		}
		if s.Name != "bad" || s.Status.Phase != "" {
			return false
		}
		s.Status.Phase, s.Status.Reason, s.Status.Message = v1alpha1.SessionEnded, v1alpha1.ReasonStartFailed, "ImagePullFailed: no such image"
		return true
	})
	f.Run("session", "start", "bad").Expect(t, 1, "session bad ended before it was ready (StartFailed: ImagePullFailed: no such image)")
	f.Run("session", "start", "gone").Expect(t, 1, "session gone was deleted before it was ready")
	f.Run("session", "start", "late", "--timeout", "100ms").Expect(t, 1,
		"session late was not ready within --timeout 100ms (Pending): it goes on starting", "session end late -n "+f.Namespace)
	if f.GetSession("late").Spec.End {
		t.Error("the session was ended")
	}
}

// An interrupt stops the waiting. The session goes on starting, and the message says how to end it.
func TestAnInterruptLeavesTheSession(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	session := f.Session("dev")
	var errs bytes.Buffer
	c := plugintest.TestCLI(genericiooptions.IOStreams{Out: &errs, ErrOut: &errs})
	*c.Flags.KubeConfig, *c.Flags.Namespace = f.Kubeconfig, f.Namespace
	cluster, err := c.Connect()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = waitForSession(ctx, cluster, session, readyGoal, &waitFlags{})
	var exit *cli.ExitError
	if !errors.As(err, &exit) || exit.Code != cli.CodeCancelled || !strings.Contains(err.Error(), "stopped waiting before session dev was ready (Pending): it goes on starting") ||
		!strings.Contains(err.Error(), "kubectl toolcall session end dev -n "+f.Namespace) {
		t.Errorf("got %v", err)
	}
}

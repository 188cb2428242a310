package plugin

import (
	"io"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

func streamsTo(out io.Writer) genericiooptions.IOStreams {
	return genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out}
}

// A call names the session that was there when the command ran, and no other of that name.
func TestRunInASession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.readySession("dev")
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if ref := call.Spec.SessionRef; ref == nil || ref.Name != "dev" || ref.UID != string(s.UID) {
			t.Errorf("call %s has the reference %+v", call.Name, ref)
		}
		return finished(withOutput(succeeded(), call.Spec.Structured.Binary+"\n", ""))
	})
	for line, want := range map[string]string{
		"run --session dev -q -- ls -l":           "ls\n",
		"session exec dev -q -- ls -l":            "ls\n",
		"session exec --quiet dev -- ls -- x":     "ls\n",
		"session exec dev -q -e A=1 -w x -- make": "make\n",
	} {
		if got := f.run(strings.Fields(line)...); got != (printed{want, "", 0}) {
			t.Errorf("%s: %+v", line, got)
		}
	}
	f.run("run", "--session", "dev", "--dry-run=server", "--", "ls").expect(t, 0, "uid: "+string(s.UID))
	f.run("run", "--session", "none", "--", "ls").expect(t, 125, `session none not found in namespace "`+f.namespace, "session list")
}

// Nothing is created for a session that takes no calls.
func TestRunInASessionThatHasEnded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.session("ended")
	f.setSession("ended", func(s *v1alpha1.ToolSession) {
		s.Status.Phase, s.Status.Reason, s.Status.Message = v1alpha1.SessionEnded, v1alpha1.ReasonIdleTimeout, "no call for 15 minutes"
	})
	f.readySession("ending", func(s *v1alpha1.ToolSession) { s.Spec.End = true })
	for _, line := range []string{"run --session ended -- ls", "session exec ended -- ls", "session shell ended", "run --session ended --dry-run=server -- ls"} {
		f.run(strings.Fields(line)...).expect(t, 125, "session ended has ended (IdleTimeout: no call for 15 minutes): start another one with kubectl toolcall session start")
	}
	f.run("session", "exec", "ending", "--", "ls").expect(t, 125, "session ending is being ended: start another one")
	list := &v1alpha1.ToolCallList{}
	if err := f.client.List(t.Context(), list, client.InNamespace(f.namespace)); err != nil || len(list.Items) > 0 {
		t.Errorf("%d calls, %v", len(list.Items), err)
	}
}

func TestRunInASuspendedSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.session("dev", onVolume, func(s *v1alpha1.ToolSession) { s.Spec.Suspend = true })
	f.run("run", "--session", "dev", "--detach", "--", "ls").expect(t, 0, "session dev is suspended: the call waits until you run kubectl toolcall session resume dev -n "+f.namespace)
	if got := f.run("run", "--session", "dev", "--detach", "-q", "--name", "c", "--", "ls"); got != (printed{"c\n", "", 0}) {
		t.Errorf("got %+v", got)
	}
}

// A background call is left alone once it runs. One that ends before is shown like any other.
func TestRunInTheBackground(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.readySession("dev")
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		switch {
		case !call.Spec.Background:
			t.Errorf("call %s is not a background call", call.Name)
		case call.Name == "broken":
			return finished(withOutput(v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonCommandNotFound, Message: "no such program"}, "", "err\n"))
		case call.Status.Phase == "":
			return running("pod")
		}
		return nil
	})
	got := f.run("run", "--session", "dev", "--background", "--name", "server", "--", "serve")
	if want := (printed{"server\n", "call server created\ncall server runs in the background of session dev: to stop it, run kubectl toolcall cancel server -n " + f.namespace + "\n", 0}); got != want {
		t.Errorf("got %+v", got)
	}
	if got := f.run("session", "exec", "dev", "--background", "-q", "--name", "quiet", "--", "serve"); got != (printed{"quiet\n", "", 0}) {
		t.Errorf("got %+v", got)
	}
	if f.call("server").Spec.Cancel {
		t.Error("the call was cancelled")
	}
	f.run("run", "--session", "dev", "--background", "-o", "jsonpath={.status.phase}", "--", "serve").expect(t, 0, "Running")
	f.run("run", "--session", "dev", "--background", "--name", "broken", "--", "serve").expect(t, 127, "err", "call broken: Failed (CommandNotFound): no such program")
	f.run("describe", "server").expect(t, 0, "Session: dev, in the background")
	f.writing(f.call("server"), "listening\n")
	f.run("logs", "server").expect(t, 0, "listening")
}

func TestArgumentsOfExec(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args    []string
		dash    int
		session string
		program string
		err     string
	}{
		"a program":              {[]string{"dev", "ls", "-l"}, 1, "dev", "ls -l", ""},
		"no program":             {[]string{"dev"}, -1, "dev", "", ""},
		"nothing after --":       {[]string{"dev"}, 1, "dev", "", ""},
		"no name":                {nil, -1, "", "", "specify the name of the session"},
		"no name before --":      {[]string{"ls"}, 0, "", "", "specify the name of the session before the program"},
		"an empty name":          {[]string{"", "ls"}, 1, "", "", "specify the name of the session"},
		"a program without --":   {[]string{"dev", "ls", "a b"}, -1, "", "", "put -- before the program: kubectl toolcall session exec dev -- ls 'a b'"},
		"two names":              {[]string{"dev", "two", "ls"}, 2, "", "", "only the name of the session can stand before --, not dev two"},
		"-- among the program's": {[]string{"dev", "git", "checkout", "--", "x"}, 1, "dev", "git checkout -- x", ""},
	} {
		session, program, err := splitExec(c.args, c.dash)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v", name, err)
		case c.err == "" && (err != nil || session != c.session || strings.Join(program, " ") != c.program):
			t.Errorf("%s: %q, %q, %v", name, session, program, err)
		}
	}
	config := offline(t)
	_, errs, code := command("", "--kubeconfig", config, "session", "exec", "dev", "ls", "-x")
	if code != 125 || !strings.Contains(errs, "flags of the program follow --, as in kubectl toolcall session exec NAME -- PROGRAM -x") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	out, errs, code := command("", "--kubeconfig", config, "session", "exec", "dev", "--dry-run", "--shell", "a | b")
	if code != 0 || !strings.Contains(out, "command: a | b") || !strings.Contains(out, "name: dev") {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	_, errs, code = command("", "--kubeconfig", config, "session", "exec", "dev")
	if code != 125 || !strings.Contains(errs, "specify what to run") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// check asks about the session as the operator does.
func TestCheckInASession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.policy(func(p *v1alpha1.ExecutionPolicySpec) { p.Access = v1alpha1.AccessOpen })
	f.environment("tools", true, v1alpha1.EnvVar{Name: "FROM_DEFAULT", Value: "private"})
	f.readySession("dev", func(s *v1alpha1.ToolSession) {
		s.Spec.Env, s.Spec.WorkingDir = []v1alpha1.CallEnvVar{{Name: "OF_SESSION", Value: "private"}}, "/workspace/x"
	})
	f.session("asleep", onVolume, func(s *v1alpha1.ToolSession) { s.Spec.Suspend = true })
	f.session("idle", onVolume)
	f.setSession("idle", inPhase(v1alpha1.SessionSuspended))
	f.session("ended")
	f.setSession("ended", inPhase(v1alpha1.SessionEnded))
	f.session("moved")
	f.setSession("moved", func(s *v1alpha1.ToolSession) {
		s.Status.Phase, s.Status.Environment = v1alpha1.SessionReady, &v1alpha1.ResolvedEnvironment{Name: "former"}
	})
	check := func(args ...string) printed { return f.run(append([]string{"check", "--session"}, args...)...) }
	got := check("dev", "--", "ls")
	got.expect(t, 0, "Allowed: yes", "Session: dev", "Environment: tools as it is now: the session keeps it as it was when the session began",
		"Directory: /workspace/x", "OF_SESSION: from the call", "FROM_DEFAULT: from the default environment", "Time limit: 2m0s")
	if strings.Contains(got.out, "private") {
		t.Errorf("a value is shown: %s", got.out)
	}
	check("dev", "--background", "--", "ls").expect(t, 0, "Time limit: none: it ends with the session")
	check("asleep", "--", "ls").expect(t, 0, "Session: asleep, suspended: the call would wait")
	check("idle", "--", "ls").expect(t, 0, "Session: idle, suspended because it was idle: the call would resume it")
	check("ended", "--", "ls").expect(t, 125, "Allowed: no, the call would fail before it starts", "SessionEnded")
	check("none", "--", "ls").expect(t, 125, "SessionNotFound", `there is no ToolSession "none"`)
	check("moved", "--", "ls").expect(t, 125, "Allowed: unknown", "session moved began with environment former, which is not the one that it would begin with now")
}

// A session is its creator's, and of those who may use it.
func TestCheckInTheSessionOfAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.policy(func(p *v1alpha1.ExecutionPolicySpec) { p.Access = v1alpha1.AccessOpen })
	f.environment("tools", true)
	f.readySession("dev")
	user := f.user([]string{"toolcall-user", "toolcall-policy-viewer"}, "ls")
	check := func() printed { return f.run("check", "--as", user, "--session", "dev", "--", "ls") }
	check().expect(t, 126, "SessionNotAllowed", "did not create the ToolSession")
	f.make(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "session"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"toolcall.dev"}, Resources: []string{"toolsessions"}, ResourceNames: []string{"dev"}, Verbs: []string{"use"}},
	}}, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "session"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "session"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	f.eventually("permission to use the session", func() bool { return check().code == 0 })
	f.run("run", "--session", "dev", "--detach", "--name", "c", "--", "ls").expect(t, 0)
	f.end("c", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: v1alpha1.ReasonSessionNotAllowed, Message: "no"})
	f.run("explain-denial", "c").expect(t, 0, "You can: start a session of your own", "Now: the same call from you would be allowed")
}

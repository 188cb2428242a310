package sessions

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// A call names the session that was there when the command ran, and no other of that name.
func TestRunInASession(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	s := f.ReadySession("dev")
	f.Operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if ref := call.Spec.SessionRef; ref == nil || ref.Name != "dev" || ref.UID != string(s.UID) {
			t.Errorf("call %s has the reference %+v", call.Name, ref)
		}
		return plugintest.Finished(plugintest.WithOutput(plugintest.Succeeded(), call.Spec.Structured.Binary+"\n", ""))
	})
	for line, want := range map[string]string{
		"run --session dev -q -- ls -l":           "ls\n",
		"session exec dev -q -- ls -l":            "ls\n",
		"session exec --quiet dev -- ls -- x":     "ls\n",
		"session exec dev -q -e A=1 -w x -- make": "make\n",
	} {
		if got := f.Run(strings.Fields(line)...); got != (plugintest.Printed{Out: want}) {
			t.Errorf("%s: %+v", line, got)
		}
	}
	f.Run("run", "--session", "dev", "--dry-run=server", "--", "ls").Expect(t, 0, "uid: "+string(s.UID))
	f.Run("run", "--session", "none", "--", "ls").Expect(t, 125, `session none not found in namespace "`+f.Namespace, "session list")
}

// Nothing is created for a session that takes no calls.
func TestRunInASessionThatHasEnded(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Session("ended")
	f.SetSession("ended", func(s *v1alpha1.ToolSession) {
		s.Status.Phase, s.Status.Reason, s.Status.Message = v1alpha1.SessionEnded, v1alpha1.ReasonIdleTimeout, "no call for 15 minutes"
	})
	f.ReadySession("ending", func(s *v1alpha1.ToolSession) { s.Spec.End = true })
	for _, line := range []string{"run --session ended -- ls", "session exec ended -- ls", "session shell ended", "run --session ended --dry-run=server -- ls"} {
		f.Run(strings.Fields(line)...).Expect(t, 125, "session ended has ended (IdleTimeout: no call for 15 minutes): start another one with kubectl toolcall session start")
	}
	f.Run("session", "exec", "ending", "--", "ls").Expect(t, 125, "session ending is being ended: start another one")
	list := &v1alpha1.ToolCallList{}
	if err := f.Client.List(t.Context(), list, client.InNamespace(f.Namespace)); err != nil || len(list.Items) > 0 {
		t.Errorf("%d calls, %v", len(list.Items), err)
	}
}

func TestRunInASuspendedSession(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Session("dev", plugintest.OnVolume, func(s *v1alpha1.ToolSession) { s.Spec.Suspend = true })
	f.Run("run", "--session", "dev", "--detach", "--", "ls").Expect(t, 0, "session dev is suspended: the call waits until you run kubectl toolcall session resume dev -n "+f.Namespace)
	if got := f.Run("run", "--session", "dev", "--detach", "-q", "--name", "c", "--", "ls"); got != (plugintest.Printed{Out: "c\n"}) {
		t.Errorf("got %+v", got)
	}
}

// A background call is left alone once it runs. One that ends before is shown like any other.
func TestRunInTheBackground(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.ReadySession("dev")
	f.Operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		switch {
		case !call.Spec.Background:
			t.Errorf("call %s is not a background call", call.Name)
		case call.Name == "broken":
			return plugintest.Finished(plugintest.WithOutput(v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonCommandNotFound, Message: "no such program"}, "", "err\n"))
		case call.Status.Phase == "":
			return plugintest.Running("pod")
		}
		return nil
	})
	got := f.Run("run", "--session", "dev", "--background", "--name", "server", "--", "serve")
	if want := (plugintest.Printed{Out: "server\n", Err: "call server created\ncall server runs in the background of session dev: to stop it, run kubectl toolcall cancel server -n " + f.Namespace + "\n"}); got != want {
		t.Errorf("got %+v", got)
	}
	if got := f.Run("session", "exec", "dev", "--background", "-q", "--name", "quiet", "--", "serve"); got != (plugintest.Printed{Out: "quiet\n"}) {
		t.Errorf("got %+v", got)
	}
	if f.Call("server").Spec.Cancel {
		t.Error("the call was cancelled")
	}
	f.Run("run", "--session", "dev", "--background", "-o", "jsonpath={.status.phase}", "--", "serve").Expect(t, 0, "Running")
	f.Run("run", "--session", "dev", "--background", "--name", "broken", "--", "serve").Expect(t, 127, "err", "call broken: Failed (CommandNotFound): no such program")
	f.Run("describe", "server").Expect(t, 0, "Session: dev, in the background")
	f.Writing(f.Call("server"), "listening\n")
	f.Run("logs", "server").Expect(t, 0, "listening")
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
	config := plugintest.Offline(t)
	const hint = ": flags of the program follow --, as in kubectl toolcall session exec NAME -- PROGRAM -x\n"
	for program, want := range map[string]string{
		"ls -x":             "error: unknown shorthand flag: 'x' in -x" + hint,
		"grep -e error log": `error: -e "error": must be NAME=VALUE` + hint,
		"curl --timeout 5":  `error: --timeout: time: missing unit in duration "5"` + hint,
	} {
		args := append([]string{"--kubeconfig", config, "session", "exec", "dev"}, strings.Fields(program)...)
		if _, errs, code := plugintest.Run("", args...); code != 125 || errs != want {
			t.Errorf("%s: exit code %d, %s", program, code, errs)
		}
	}
	out, errs, code := plugintest.Run("", "--kubeconfig", config, "session", "exec", "dev", "--dry-run", "--shell", "a | b")
	if code != 0 || !strings.Contains(out, "command: a | b") || !strings.Contains(out, "name: dev") {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	_, errs, code = plugintest.Run("", "--kubeconfig", config, "session", "exec", "dev")
	if code != 125 || !strings.Contains(errs, "specify what to run") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// check asks about the session as the operator does.
func TestCheckInASession(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) { p.Access = v1alpha1.AccessOpen })
	f.Environment("tools", true, v1alpha1.EnvVar{Name: "FROM_DEFAULT", Value: "private"})
	f.ReadySession("dev", func(s *v1alpha1.ToolSession) {
		s.Spec.Env, s.Spec.WorkingDir = []v1alpha1.CallEnvVar{{Name: "OF_SESSION", Value: "private"}}, "/workspace/x"
	})
	f.Session("asleep", plugintest.OnVolume, func(s *v1alpha1.ToolSession) { s.Spec.Suspend = true })
	f.Session("idle", plugintest.OnVolume)
	f.SetSession("idle", plugintest.InPhase(v1alpha1.SessionSuspended))
	f.Session("ended")
	f.SetSession("ended", plugintest.InPhase(v1alpha1.SessionEnded))
	check := func(args ...string) plugintest.Printed {
		return f.Run(append([]string{"check", "--session"}, args...)...)
	}
	got := check("dev", "--", "ls")
	got.Expect(t, 0, "Allowed: yes", "Session: dev", "Environment: tools as it is now: the session keeps it as it was when the session began",
		"Directory: /workspace/x", "OF_SESSION: from the call", "FROM_DEFAULT: from the default environment", "Time limit: 2m0s")
	if strings.Contains(got.Out, "private") {
		t.Errorf("a value is shown: %s", got.Out)
	}
	check("dev", "--background", "--", "ls").Expect(t, 0, "Time limit: none: it ends with the session")
	check("asleep", "--", "ls").Expect(t, 0, "Session: asleep, suspended: the call would wait")
	check("idle", "--", "ls").Expect(t, 0, "Session: idle, suspended because it was idle: the call would resume it")
	check("ended", "--", "ls").Expect(t, 125, "Allowed: no, the call would fail before it starts", "SessionEnded")
	check("none", "--", "ls").Expect(t, 125, "SessionNotFound", `there is no ToolSession "none"`)
}

// A session is its creator's, and of those who may use it.
func TestCheckInTheSessionOfAnother(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) { p.Access = v1alpha1.AccessOpen })
	f.Environment("tools", true)
	f.ReadySession("dev")
	user := f.User([]string{"toolcall-user", "toolcall-policy-viewer"}, "ls")
	check := func() plugintest.Printed { return f.Run("check", "--as", user, "--session", "dev", "--", "ls") }
	check().Expect(t, 126, "SessionNotAllowed", "did not create the ToolSession")
	f.Make(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "session"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"toolcall.dev"}, Resources: []string{"toolsessions"}, ResourceNames: []string{"dev"}, Verbs: []string{"use"}},
	}}, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "session"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "session"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	f.Eventually("permission to use the session", func() bool { return check().Code == 0 })
	f.Run("run", "--session", "dev", "--detach", "--name", "c", "--", "ls").Expect(t, 0)
	f.End("c", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: v1alpha1.ReasonSessionNotAllowed, Message: "no"})
	f.Run("explain-denial", "c").Expect(t, 0, "You can: start a session of your own", "Now: the same call from you would be allowed")
}

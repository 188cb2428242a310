package e2e

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// expectRefused wants the API server to say no, with every part in its answer.
func expectRefused(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		t.Fatalf("the API server's answer is %v, not a refusal", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the answer lacks %q: %v", part, err)
		}
	}
}

func TestCallsThatTheAPIRefuses(t *testing.T) {
	once(t)
	t.Parallel()
	sp := newSpace(t)
	const exactlyOne = "set exactly one of structured, shell, code, tool and file"
	withEnv := func(vars ...v1alpha1.CallEnvVar) v1alpha1.ToolCallSpec {
		spec := shell("true")
		spec.Env = vars
		return spec
	}
	half := strings.Repeat("x", 65<<10)
	both := shell("true")
	both.Code = &v1alpha1.CodeAction{Language: "python", Source: "1"}
	for name, test := range map[string]struct {
		spec v1alpha1.ToolCallSpec
		want string
	}{
		"nothing to run":                     {v1alpha1.ToolCallSpec{}, exactlyOne},
		"two things to run":                  {both, exactlyOne},
		"a name that starts with a digit":    {withEnv(v1alpha1.CallEnvVar{Name: "1A"}), "spec.env[0].name"},
		"a name with a dash":                 {withEnv(v1alpha1.CallEnvVar{Name: "A-B"}), "spec.env[0].name"},
		"an exported function":               {withEnv(v1alpha1.CallEnvVar{Name: "BASH_FUNC_ls%%", Value: "() { id; }"}), "spec.env[0].name"},
		"an empty name":                      {withEnv(v1alpha1.CallEnvVar{Name: ""}), "spec.env[0].name"},
		"a name twice":                       {withEnv(v1alpha1.CallEnvVar{Name: "A"}, v1alpha1.CallEnvVar{Name: "A"}), "spec.env[1]"},
		"a NUL byte in a value":              {withEnv(v1alpha1.CallEnvVar{Name: "A", Value: "a\x00b"}), "spec.env[0].value"},
		"a NUL byte in a command":            {shell("echo \x00"), "spec.shell.command"},
		"more than 128 KiB of variables":     {withEnv(v1alpha1.CallEnvVar{Name: "A", Value: half}, v1alpha1.CallEnvVar{Name: "B", Value: half}), "131072 bytes"},
		"a source of more than 512 KiB":      {code("python", strings.Repeat("#", 524289)), "spec.code.source"},
		"a negative limit":                   {within(-1, shell("true")), "spec.timeoutSeconds"},
		"a reference without a name":         {in("", shell("true")), "spec.environmentRef.name"},
		"a working directory with a NUL":     {v1alpha1.ToolCallSpec{Shell: shell("true").Shell, WorkingDir: "/a\x00"}, "spec.workingDir"},
		"a tool's arguments that are a list": {tool("bash", `["ls"]`), "spec.tool.arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectRefused(t, sp.client.Create(t.Context(), sp.newCall(test.spec)), test.want)
		})
	}
}

func TestSpecIsImmutable(t *testing.T) {
	once(t)
	t.Parallel()
	sp := newSpace(t)
	call := sp.run(t, within(5, shell("echo once")))
	for field, change := range map[string]func(*v1alpha1.ToolCallSpec){
		"shell is immutable":                   func(s *v1alpha1.ToolCallSpec) { s.Shell.Command = "echo twice" },
		"structured is immutable":              func(s *v1alpha1.ToolCallSpec) { s.Shell, s.Structured = nil, &v1alpha1.StructuredAction{Binary: "ls"} },
		"environmentRef is immutable":          func(s *v1alpha1.ToolCallSpec) { *s = in("other", *s) },
		"skillRef is immutable":                func(s *v1alpha1.ToolCallSpec) { s.SkillRef = &v1alpha1.LocalReference{Name: "x"} },
		"workingDir is immutable":              func(s *v1alpha1.ToolCallSpec) { s.WorkingDir = "/tmp" },
		"env is immutable":                     func(s *v1alpha1.ToolCallSpec) { s.Env = []v1alpha1.CallEnvVar{{Name: "A"}} },
		"stdin is immutable":                   func(s *v1alpha1.ToolCallSpec) { s.Stdin = "x" },
		"timeoutSeconds is immutable":          func(s *v1alpha1.ToolCallSpec) { s.TimeoutSeconds = nil },
		"ttlSecondsAfterFinished is immutable": func(s *v1alpha1.ToolCallSpec) { s.TTLSecondsAfterFinished = ptr.To(int32(1)) },
		"trusted is immutable":                 func(s *v1alpha1.ToolCallSpec) { s.Trusted = true },
		"requestedBy is immutable":             func(s *v1alpha1.ToolCallSpec) { s.RequestedBy.Username = "somebody-else" },
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			expectRefused(t, sp.update(t, call, change), field)
		})
	}
	t.Run("requestedBy can't be removed", func(t *testing.T) {
		t.Parallel()
		expectRefused(t, sp.update(t, call, func(s *v1alpha1.ToolCallSpec) { s.RequestedBy = nil }), "requestedBy is immutable")
	})
}

func TestCancelCannotBeTakenBack(t *testing.T) {
	once(t)
	t.Parallel()
	sp := newSpace(t)
	call := sp.create(t, shell("echo running; sleep 600"))
	running := sp.awaitLine(t, call, "running")
	sp.cancel(t, running)
	cancelled := running.DeepCopy()
	must(t, sp.client.Get(t.Context(), keyOf(call), cancelled))
	expectRefused(t, sp.update(t, cancelled, func(s *v1alpha1.ToolCallSpec) { s.Cancel = false }), "cancel can't be taken back")
	done := sp.awaitFinished(t, call)
	if done.Status.Reason != v1alpha1.ReasonCancelRequested {
		t.Errorf("it ended %s", done.Status.Reason)
	}
}

func TestSameNameTwiceIsRefused(t *testing.T) {
	once(t)
	t.Parallel()
	sp := newSpace(t)
	call := sp.newCall(shell("echo once"))
	call.GenerateName, call.Name = "", "once"
	again := call.DeepCopy()
	must(t, sp.client.Create(t.Context(), call))
	if err := sp.client.Create(t.Context(), again); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the second create is answered by %v", err)
	}
	expect(t, sp.awaitFinished(t, call), succeeded("once\n"))
}

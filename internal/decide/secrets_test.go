package decide_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/envresolve"
)

// toolSecret is a secret for calls of some tools.
func toolSecret(name, key string, tools ...string) v1alpha1.ToolSecret {
	return v1alpha1.ToolSecret{Name: name, Tools: tools, SecretKeyRef: corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Key: key,
	}}
}

func withSecrets(secrets ...v1alpha1.ToolSecret) change {
	return func(s *decide.Snapshot) { s.Named.Spec.Secrets = append(s.Named.Spec.Secrets, secrets...) }
}

func structured(binary string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: binary}}
}

// given are the names of the variables with a reference that a decision's call gets.
func given(d *decide.Decision) map[string]bool {
	names := map[string]bool{}
	for _, layer := range d.Plan.Layers {
		for _, v := range layer.Vars {
			if v.Ref != "" {
				names[v.Name] = v.File
			}
		}
	}
	return names
}

func keys(refs []corev1.EnvVar) []string {
	var list []string
	for _, ref := range refs {
		list = append(list, ref.ValueFrom.SecretKeyRef.Key)
	}
	return list
}

func TestOnlyCallsOfItsToolsGetASecret(t *testing.T) {
	t.Parallel()
	file := toolSecret("KEY_FILE", "ssh", "git")
	file.As = v1alpha1.SecretAsFile
	secrets := withSecrets(toolSecret("TOKEN", "token", "git", "bash"), file)
	for name, tc := range map[string]struct {
		call v1alpha1.ToolCallSpec
		want map[string]bool
	}{
		"a listed program":    {structured("git"), map[string]bool{"TOKEN": false, "KEY_FILE": true}},
		"a shell call":        {v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "git push"}}, map[string]bool{"TOKEN": false}},
		"another program":     {structured("curl"), map[string]bool{}},
		"a name that goes on": {structured("git-lfs"), map[string]bool{}},
		"code":                {v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: "python", Source: "print(1)"}}, map[string]bool{}},
	} {
		d := mustDecide(t, snapshot(secrets, runs(tc.call)))
		if diff := cmp.Diff(tc.want, given(d)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
		if len(d.Refs) != len(tc.want) {
			t.Errorf("%s: the pod resolves %v", name, keys(d.Refs))
		}
	}
}

// A Secret that is missing must fail the calls that need it, and no pod.
func TestThePodStartsWithoutASecretThatIsMissing(t *testing.T) {
	t.Parallel()
	left := toolSecret("LEFT", "left", "git")
	left.SecretKeyRef.Optional = ptr.To(true)
	change := withSecrets(toolSecret("TOKEN", "token", "git"), left)
	d := mustDecide(t, snapshot(change, runs(structured("git"))))
	pool := decide.PoolRefs(snapshot(change).Named, nil, nil)
	for _, ref := range append(pool, d.Refs...) {
		if !ptr.Deref(ref.ValueFrom.SecretKeyRef.Optional, false) {
			t.Errorf("a pod doesn't start without %q", ref.ValueFrom.SecretKeyRef.Key)
		}
	}
	if len(pool) != 2 || len(d.Refs) != 2 {
		t.Errorf("waiting pods have %v, the call's %v", keys(pool), keys(d.Refs))
	}
	_, err := envresolve.Resolve(&d.Plan, nil, nil)
	for _, text := range []string{"TOKEN", `key "token" of Secret "secret"`} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("the call's error doesn't say %s: %v", text, err)
		}
	}
	for _, layer := range d.Plan.Layers {
		for _, v := range layer.Vars {
			if !v.Apart {
				t.Errorf("%s isn't kept from other calls of the pod", v.Name)
			}
		}
	}
	// The user's optional lets the call run without.
	d = mustDecide(t, snapshot(withSecrets(left), runs(structured("git"))))
	if resolved, err := envresolve.Resolve(&d.Plan, nil, nil); err != nil || slices.ContainsFunc(resolved.Env, func(kv string) bool { return strings.HasPrefix(kv, "LEFT=") }) {
		t.Errorf("got %v, %v", resolved.Env, err)
	}
	// What is known has the references that pods have.
	if len(d.Plan.Known) != 1 || d.Plan.Known[0].Ref != d.Refs[0].Name {
		t.Errorf("known are %+v, the pod has %+v", d.Plan.Known, d.Refs)
	}
}

func TestASecretCountsOverAVariableOfItsName(t *testing.T) {
	t.Parallel()
	d := mustDecide(t, snapshot(withSecrets(toolSecret("TOKEN", "narrow", "git")), runs(structured("git")), func(s *decide.Snapshot) {
		s.Named.Spec.Env = []v1alpha1.EnvVar{secret("TOKEN", "wide")}
	}))
	if diff := cmp.Diff([]string{"narrow"}, keys(d.Refs)); diff != "" {
		t.Error(diff)
	}
	pool := decide.PoolRefs(snapshot(withSecrets(toolSecret("TOKEN", "narrow", "git")), func(s *decide.Snapshot) {
		s.Named.Spec.Env = []v1alpha1.EnvVar{secret("TOKEN", "wide")}
	}).Named, nil, nil)
	if len(pool) != 2 {
		t.Errorf("waiting pods take calls of any tool, and have %v", keys(pool))
	}
}

func TestABlockedSecretIsInNoPodThatAnybodyMayGet(t *testing.T) {
	t.Parallel()
	env := environment("env")
	env.Spec.Secrets = []v1alpha1.ToolSecret{toolSecret("AWS_SECRET_ACCESS_KEY", "aws", "aws"), toolSecret("TOKEN", "token", "git")}
	if diff := cmp.Diff([]string{"token"}, keys(decide.PoolRefs(&env, nil, []string{"AWS_"}))); diff != "" {
		t.Error(diff)
	}
}

// The default environment's variables reach calls that name another one; its secrets don't.
func TestTheDefaultEnvironmentsSecretsStayThere(t *testing.T) {
	t.Parallel()
	byDefault := environment("default")
	byDefault.Spec.Secrets = []v1alpha1.ToolSecret{toolSecret("TOKEN", "token", "git")}
	beside := func(s *decide.Snapshot) { s.Defaults = []v1alpha1.ExecutionEnvironment{byDefault} }
	if d := mustDecide(t, snapshot(beside, runs(structured("git")))); len(d.Refs) != 0 || len(d.Plan.Known) != 0 {
		t.Errorf("beside a named one: %v, %v", keys(d.Refs), d.Plan.Known)
	}
	alone := func(s *decide.Snapshot) { s.Named, s.Call.Spec.EnvironmentRef = nil, nil }
	if d := mustDecide(t, snapshot(beside, alone, runs(structured("git")), func(s *decide.Snapshot) {
		s.Policies.Named, s.Policies.Defaults = nil, []v1alpha1.ExecutionPolicy{*policy("policy", open())}
	})); len(d.Refs) != 1 {
		t.Errorf("as the call's own: %v", keys(d.Refs))
	}
}

func TestValuesOfAllSecretsAreKnown(t *testing.T) {
	t.Parallel()
	open, off := open(), open()
	off.Output = &v1alpha1.OutputPolicy{Redaction: v1alpha1.RedactOff}
	public := toolSecret("PUBLIC", "public", "git")
	public.Redact = ptr.To(false)
	env := func(s *decide.Snapshot) {
		s.Named.Spec.Env = []v1alpha1.EnvVar{secret("PASSWORD", "password"), secret("AGAIN", "password")}
	}
	for name, tc := range map[string]struct {
		policy v1alpha1.ExecutionPolicySpec
		want   []string
	}{
		"by default": {open, []string{"TOKEN", "PASSWORD"}},
		"off":        {off, nil},
	} {
		// The call's own tool gets none of them: another call of the session may have written one down.
		d := mustDecide(t, snapshot(under(tc.policy), env, withSecrets(toolSecret("TOKEN", "token", "git"), public), runs(structured("curl"))))
		var got []string
		for _, k := range d.Plan.Known {
			got = append(got, k.Name)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

func TestAVariableIsLeftOutOfRedactionWhereNothingElseRedactsIt(t *testing.T) {
	t.Parallel()
	left := func(name, key string) v1alpha1.EnvVar {
		v := secret(name, key)
		v.Redact = ptr.To(false)
		return v
	}
	env := func(vars ...v1alpha1.EnvVar) change {
		return func(s *decide.Snapshot) { s.Named.Spec.Env = vars }
	}
	for name, tc := range map[string]struct {
		env  change
		want []envresolve.Known
	}{
		"a variable that isn't redacted":             {env(left("PUBLIC", "public")), nil},
		"one key in two variables, one not redacted": {env(left("PUBLIC", "key"), secret("TOKEN", "key")), []envresolve.Known{{Name: "TOKEN"}}},
		"one that says that it is redacted":          {env(func() v1alpha1.EnvVar { v := secret("TOKEN", "key"); v.Redact = ptr.To(true); return v }()), []envresolve.Known{{Name: "TOKEN"}}},
		"another variable beside one that isn't":     {env(left("PUBLIC", "public"), secret("TOKEN", "key")), []envresolve.Known{{Name: "TOKEN"}}},
	} {
		d := mustDecide(t, snapshot(tc.env))
		for i := range d.Plan.Known {
			d.Plan.Known[i].Ref = ""
		}
		if diff := cmp.Diff(tc.want, d.Plan.Known); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

func TestKnownValuesAreThoseThatThePodHas(t *testing.T) {
	t.Parallel()
	d := mustDecide(t, snapshot(withSecrets(toolSecret("TOKEN", "token", "git"), toolSecret("OTHER", "other", "curl")), runs(structured("git"))))
	resolved, err := envresolve.Resolve(&d.Plan, []string{d.Refs[0].Name + "=s3cr3t-value"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]envresolve.KnownValue{{Name: "TOKEN", Value: "s3cr3t-value", Given: true}}, resolved.Known); diff != "" {
		t.Error(diff)
	}
}

// What is held back of a call's output must not depend on values that the call wasn't given.
func TestAKnownValueSaysWhetherTheCallHasIt(t *testing.T) {
	t.Parallel()
	secrets := withSecrets(toolSecret("TOKEN", "token", "git"))
	d := mustDecide(t, snapshot(secrets, runs(structured("curl"))))
	// A session's pod has the values of all tools.
	resolved, err := envresolve.Resolve(&d.Plan, []string{d.Plan.Known[0].Ref + "=s3cr3t-value"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]envresolve.KnownValue{{Name: "TOKEN", Value: "s3cr3t-value"}}, resolved.Known); diff != "" {
		t.Error(diff)
	}
}

// Who decides has no values: a refusal names the part of the call that isn't allowed, whatever that is.
func TestARefusalShowsAValueThatIsInTheCommand(t *testing.T) {
	t.Parallel()
	const value = "correct-horse-battery"
	listed := open()
	listed.Shell.Commands = v1alpha1.ShellAllowlisted
	listed.Binaries = &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Enforcement: v1alpha1.EnforcementName, Allowed: []string{"ls"}}
	for name, call := range map[string]v1alpha1.ToolCallSpec{
		"a program": structured(value), "a word of a shell call": {Shell: &v1alpha1.ShellAction{Command: "ls; " + value}},
	} {
		refusal := refusalOf(t, snapshot(withSecrets(toolSecret("TOKEN", "token", "bash")), under(listed), runs(call)))
		if !refusal.Denied || !strings.Contains(refusal.Message, value) {
			t.Errorf("%s: %+v", name, refusal)
		}
	}
}

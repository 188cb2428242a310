package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// kubernetesEnv is what the kubelet puts into every container.
var kubernetesEnv = []string{
	"KUBERNETES_PORT", "KUBERNETES_PORT_443_TCP", "KUBERNETES_PORT_443_TCP_ADDR", "KUBERNETES_PORT_443_TCP_PORT",
	"KUBERNETES_PORT_443_TCP_PROTO", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBERNETES_SERVICE_PORT_HTTPS",
}

func value(name, value string) v1alpha1.EnvVar { return v1alpha1.EnvVar{Name: name, Value: value} }

func fromSecret(name, secret, key string, optional bool) v1alpha1.EnvVar {
	return v1alpha1.EnvVar{Name: name, ValueFrom: &v1alpha1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key, Optional: &optional,
	}}}
}

func fromConfigMap(name, configMap, key string, optional bool) v1alpha1.EnvVar {
	return v1alpha1.EnvVar{Name: name, ValueFrom: &v1alpha1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: configMap}, Key: key, Optional: &optional,
	}}}
}

// newData makes a Secret and a ConfigMap, both named data.
func (sp *space) newData(t *testing.T, data map[string]string) {
	t.Helper()
	object := metav1.ObjectMeta{Namespace: sp.namespace, Name: "data"}
	must(t, sp.client.Create(t.Context(), &corev1.Secret{ObjectMeta: object, StringData: data}))
	must(t, sp.client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: object, Data: data}))
}

// environ is what a call that runs env got, without what differs from pod to pod.
func environ(t *testing.T, call *v1alpha1.ToolCall) map[string]string {
	t.Helper()
	if call.Status.Reason != v1alpha1.ReasonCompleted {
		t.Fatalf("the call ended %s: %s", call.Status.Reason, call.Status.Message)
	}
	got := map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSuffix(call.Status.Stdout, "\x00"), "\x00") {
		name, value, _ := strings.Cut(line, "=")
		got[name] = value
	}
	// What every process finds beside those of its sources.
	maps.DeleteFunc(got, func(name, _ string) bool {
		return name == "HOSTNAME" || name == "PYTHONUNBUFFERED" || strings.HasPrefix(name, "GIT_CONFIG_")
	})
	return got
}

// sources are the layers that the status names, for the variables that a layer set.
func sources(call *v1alpha1.ToolCall) map[string]v1alpha1.EnvSource {
	got := map[string]v1alpha1.EnvSource{}
	for _, v := range call.Status.Environment.Env {
		if v.Source != v1alpha1.EnvSourceImage {
			got[v.Name] = v.Source
		}
	}
	return got
}

func expectSame[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestEnvironmentOfAPlainCall(t *testing.T) {
	sessionFirst(t, testEnvironmentOfAPlainCall, wayCold, wayWarm, wayImage)
}

func testEnvironmentOfAPlainCall(t *testing.T, w way) {
	sp := w.newSpace(t)
	sp.newEnvironment(t, "minimal", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.InheritEnv = v1alpha1.InheritMinimal })
	t.Run("is the image's without what is blocked", func(t *testing.T) {
		t.Parallel()
		call := sp.run(t, structured("env", "-0"))
		expectSame(t, "variables", map[string]string{
			"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/tool", "LANG": "C.UTF-8", "TERM": "dumb",
		}, environ(t, call))
		expectSame(t, "strippedEnv", kubernetesEnv, call.Status.Environment.StrippedEnv)
		if !call.Status.Environment.Trusted || call.Status.Environment.Name != defaultEnv {
			t.Errorf("a call without context of its own is trusted, in the default environment: %+v", call.Status.Environment)
		}
	})
	t.Run("is little more than PATH and HOME when Minimal", func(t *testing.T) {
		t.Parallel()
		call := sp.run(t, in("minimal", structured("env", "-0")))
		expectSame(t, "variables", map[string]string{
			"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/tool", "LANG": "en_US.UTF-8", "TERM": "dumb",
		}, environ(t, call))
		if call.Status.Environment.Trusted {
			t.Error("a call that names its environment is trusted")
		}
	})
}

// Each variable comes from the most specific layer that sets it, whether by value or by reference.
func TestEnvironmentPrecedence(t *testing.T) {
	everyWay(t, testEnvironmentPrecedence)
}

func testEnvironmentPrecedence(t *testing.T, w way) {
	sp := w.newBareSpace(t, showsSecrets)
	sp.newData(t, map[string]string{"default": "default's data", "skill": "skill's data", "named": "named's data"})
	sp.newEnvironment(t, "fallback", isDefault, func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Env = []v1alpha1.EnvVar{
			value("ALL", "default"), value("ONLY_DEFAULT", "default"), value("SKILL_OVER_DEFAULT", "default"),
			value("NAMED_OVER_DEFAULT", "default"), value("CALL_OVER_DEFAULT", "default"),
			fromSecret("LITERAL_OVER_SECRET", "data", "default", false),
			value("SECRET_OVER_LITERAL", "default"), value("CONFIGMAP_OVER_LITERAL", "default"),
			fromConfigMap("SECRET_OVER_CONFIGMAP", "data", "default", false),
			value("ABSENT_OPTIONAL_SHOWS_THIS", "default"),
			fromSecret("ABSENT_BUT_OVERRIDDEN", "missing", "key", false),
			fromConfigMap("DEFAULT_CONFIGMAP", "data", "default", false),
		}
	})
	sp.newEnvironment(t, "named", func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Env = []v1alpha1.EnvVar{
			value("ALL", "named"), value("NAMED_OVER_DEFAULT", "named"), value("NAMED_OVER_SKILL", "named"),
			value("CALL_OVER_NAMED", "named"), value("LITERAL_OVER_SECRET", "named"),
			fromSecret("SECRET_OVER_LITERAL", "data", "named", false),
			fromConfigMap("CONFIGMAP_OVER_LITERAL", "data", "named", false),
			fromSecret("SECRET_OVER_CONFIGMAP", "data", "named", false),
			fromSecret("ABSENT_OPTIONAL_SHOWS_THIS", "missing", "key", true),
			fromConfigMap("ABSENT_OPTIONAL", "data", "no-such-key", true),
			fromSecret("CALL_OVER_SECRET", "data", "named", false), value("EMPTY", ""),
		}
	})
	skill := &v1alpha1.Skill{ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: "skill"}}
	skill.Spec.Env = []v1alpha1.EnvVar{
		value("ALL", "skill"), value("SKILL_OVER_DEFAULT", "skill"), value("NAMED_OVER_SKILL", "skill"),
		value("CALL_OVER_SKILL", "skill"), fromSecret("SKILL_SECRET", "data", "skill", false), value("ABSENT_BUT_OVERRIDDEN", "skill"),
	}
	must(t, sp.client.Create(t.Context(), skill))

	spec := in("named", structured("env", "-0"))
	spec.SkillRef = &v1alpha1.LocalReference{Name: "skill"}
	for _, name := range []string{"ALL", "CALL_OVER_DEFAULT", "CALL_OVER_SKILL", "CALL_OVER_NAMED", "CALL_OVER_SECRET", "HOME"} {
		spec.Env = append(spec.Env, v1alpha1.CallEnvVar{Name: name, Value: "call"})
	}
	call := sp.run(t, spec)
	const byCall, byNamed, bySkill, byDefault = v1alpha1.EnvSourceCall, v1alpha1.EnvSourceEnvironment, v1alpha1.EnvSourceSkill, v1alpha1.EnvSourceDefault
	wantSources := map[string]v1alpha1.EnvSource{
		"ALL": byCall, "CALL_OVER_DEFAULT": byCall, "CALL_OVER_SKILL": byCall, "CALL_OVER_NAMED": byCall, "CALL_OVER_SECRET": byCall, "HOME": byCall,
		"NAMED_OVER_DEFAULT": byNamed, "NAMED_OVER_SKILL": byNamed, "LITERAL_OVER_SECRET": byNamed, "SECRET_OVER_LITERAL": byNamed,
		"CONFIGMAP_OVER_LITERAL": byNamed, "SECRET_OVER_CONFIGMAP": byNamed, "EMPTY": byNamed,
		"SKILL_OVER_DEFAULT": bySkill, "SKILL_SECRET": bySkill, "ABSENT_BUT_OVERRIDDEN": bySkill,
		"ONLY_DEFAULT": byDefault, "ABSENT_OPTIONAL_SHOWS_THIS": byDefault, "DEFAULT_CONFIGMAP": byDefault,
	}
	texts := map[v1alpha1.EnvSource]string{byCall: "call", byNamed: "named", bySkill: "skill", byDefault: "default"}
	want := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb"}
	for name, source := range wantSources {
		want[name] = texts[source]
	}
	maps.Copy(want, map[string]string{
		"SECRET_OVER_LITERAL": "named's data", "CONFIGMAP_OVER_LITERAL": "named's data", "SECRET_OVER_CONFIGMAP": "named's data",
		"SKILL_SECRET": "skill's data", "DEFAULT_CONFIGMAP": "default's data", "EMPTY": "",
	})
	expectSame(t, "variables", want, environ(t, call))
	expectSame(t, "sources", wantSources, sources(call))
	if !slices.IsSortedFunc(call.Status.Environment.Env, func(a, b v1alpha1.ResolvedEnvVar) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("status.environment.env is not sorted")
	}
}

// What a call lacks names the object and the key, and nothing runs.
func TestMissingReferences(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	sp.newData(t, map[string]string{"key": "value"})
	for name, test := range map[string]struct {
		variable v1alpha1.EnvVar
		messages []string
	}{
		"a Secret":           {fromSecret("WANTED", "no-such-secret", "key", false), []string{`secret "no-such-secret" not found`}},
		"a ConfigMap":        {fromConfigMap("WANTED", "no-such-map", "key", false), []string{`configmap "no-such-map" not found`}},
		"a key of a Secret":  {fromSecret("WANTED", "data", "no-such-key", false), []string{"no-such-key", "data"}},
		"a key of ConfigMap": {fromConfigMap("WANTED", "data", "no-such-key", false), []string{"no-such-key", "data"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := envName(name)
			sp.newEnvironment(t, env, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Env = []v1alpha1.EnvVar{test.variable} })
			call := sp.run(t, in(env, shell("echo never")))
			expect(t, call, neverRan(v1alpha1.ReasonInvalidEnvironment))
			expectMessage(t, call, test.messages...)
			sp.awaitNoJob(t, call)
		})
	}
}

// What the operator of the platform set survives only in a context that a model didn't choose.
func TestTrustDecidesOnBlockedVariables(t *testing.T) {
	t.Parallel()
	sp := newBareSpace(t, showsSecrets)
	sp.newData(t, map[string]string{"key": "from the Secret"})
	blocked := []v1alpha1.EnvVar{value("AWS_REGION", "here"), fromSecret("OPENAI_API_KEY", "data", "key", false), value("PLAIN", "kept")}
	sp.newEnvironment(t, defaultEnv, isDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Env = blocked })
	with := func(change func(*v1alpha1.ToolCallSpec)) v1alpha1.ToolCallSpec {
		spec := structured("env", "-0")
		change(&spec)
		return spec
	}
	for name, test := range map[string]struct {
		spec    v1alpha1.ToolCallSpec
		trusted bool
	}{
		"a call without context of its own": {with(func(*v1alpha1.ToolCallSpec) {}), true},
		"one that names the environment":    {with(func(s *v1alpha1.ToolCallSpec) { *s = in(defaultEnv, *s) }), false},
		"one that names a directory":        {with(func(s *v1alpha1.ToolCallSpec) { s.WorkingDir = "/tmp" }), false},
		"one that sets a variable": {with(func(s *v1alpha1.ToolCallSpec) {
			s.Env = []v1alpha1.CallEnvVar{{Name: "AWS_SECRET", Value: "the caller's"}}
		}), false},
		"one that names the environment and is trusted": {with(func(s *v1alpha1.ToolCallSpec) {
			*s = in(defaultEnv, *s)
			s.Trusted = true
		}), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := sp.run(t, test.spec)
			got := environ(t, call)
			stripped := kubernetesEnv
			want := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/tool", "LANG": "C.UTF-8", "TERM": "dumb", "PLAIN": "kept"}
			if test.trusted {
				want["AWS_REGION"], want["OPENAI_API_KEY"] = "here", "from the Secret"
			} else {
				stripped = append(slices.Clone(kubernetesEnv), "AWS_REGION", "OPENAI_API_KEY")
				for _, v := range test.spec.Env {
					stripped = append(stripped, v.Name)
				}
				slices.Sort(stripped)
			}
			expectSame(t, "variables", want, got)
			expectSame(t, "strippedEnv", stripped, call.Status.Environment.StrippedEnv)
			if call.Status.Environment.Trusted != test.trusted {
				t.Errorf("status.environment.trusted is %t", call.Status.Environment.Trusted)
			}
		})
	}
}

// A call keeps what it was accepted with.
func TestEnvironmentThatChangesUnderACall(t *testing.T) {
	coldFirst(t, testEnvironmentThatChangesUnderACall, wayWarm, wayImage)
}

func testEnvironmentThatChangesUnderACall(t *testing.T, w way) {
	sp := w.newSpace(t)
	t.Run("deleted while the command runs", func(t *testing.T) {
		t.Parallel()
		env := sp.newEnvironment(t, "deleted", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Env = []v1alpha1.EnvVar{value("WHAT", "old")} })
		call := sp.create(t, in("deleted", shell("echo running; "+held+"; echo $WHAT")))
		running := sp.awaitPhase(t, call, v1alpha1.PhaseRunning)
		must(t, sp.client.Delete(t.Context(), env))
		sp.awaitGone(t, env)
		sp.letGo(t, running)
		expect(t, sp.awaitFinished(t, call), succeeded("running\nold\n"))
	})
	t.Run("changed before the pod has started", func(t *testing.T) {
		t.Parallel()
		env := sp.newEnvironment(t, "changed", func(e *v1alpha1.ExecutionEnvironment) {
			e.Spec.Env = []v1alpha1.EnvVar{value("WHAT", "old")}
			e.Spec.Volumes = []corev1.Volume{{Name: "late", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "late"},
			}}}}
			e.Spec.VolumeMounts = []corev1.VolumeMount{{Name: "late", MountPath: "/late"}}
		})
		call := sp.create(t, in("changed", shell("echo $WHAT; pwd")))
		sp.awaitPhase(t, call, v1alpha1.PhasePending)
		sp.editEnvironment(t, env.Name, func(e *v1alpha1.ExecutionEnvironment) {
			e.Spec.Env[0].Value, e.Spec.WorkingDir, e.Spec.StartTimeoutSeconds = "new", "/tmp", ptr.To(int32(1))
		})
		must(t, sp.client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: "late"}}))
		expect(t, sp.awaitFinished(t, call), succeeded("old\n/workspace\n"))
	})
}

func (sp *space) editEnvironment(t *testing.T, name string, change func(*v1alpha1.ExecutionEnvironment)) {
	t.Helper()
	sp.retryConflict(t, func() error {
		env := &v1alpha1.ExecutionEnvironment{}
		env.Namespace, env.Name = sp.namespace, name
		if err := sp.client.Get(t.Context(), keyOf(env), env); err != nil {
			return err
		}
		change(env)
		return sp.client.Update(t.Context(), env)
	})
}

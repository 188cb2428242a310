package api_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestEnvironmentsThatTheAPIServerTakesAndRefuses(t *testing.T) {
	s := newSpace(t)
	valid := func(change func(*v1alpha1.ExecutionEnvironmentSpec)) client.Object {
		env := &v1alpha1.ExecutionEnvironment{Spec: v1alpha1.ExecutionEnvironmentSpec{Image: "i"}}
		change(&env.Spec)
		return env
	}
	from := func(source v1alpha1.EnvVarSource) func(*v1alpha1.ExecutionEnvironmentSpec) {
		return func(s *v1alpha1.ExecutionEnvironmentSpec) {
			s.Env = []v1alpha1.EnvVar{{Name: "A", ValueFrom: &source}}
		}
	}
	key := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}
	for name, a := range map[string]attempt{
		"an image":    {valid(func(*v1alpha1.ExecutionEnvironmentSpec) {}), ""},
		"no image":    {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.Image = "" }), "spec.image"},
		"a reference": {valid(from(v1alpha1.EnvVarSource{SecretKeyRef: key})), ""},
		"no source":   {valid(from(v1alpha1.EnvVarSource{})), "exactly one of secretKeyRef"},
		"two sources": {valid(from(v1alpha1.EnvVarSource{SecretKeyRef: key, FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}})), "exactly one of secretKeyRef"},
		"value and reference": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) {
			s.Env = []v1alpha1.EnvVar{{Name: "A", Value: "x", ValueFrom: &v1alpha1.EnvVarSource{SecretKeyRef: key}}}
		}), "set value or valueFrom, not both"},
		"an exported function": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) {
			s.Env = []v1alpha1.EnvVar{{Name: "BASH_FUNC_ls%%", Value: "() { id; }"}}
		}), "spec.env[0].name"},
		"a runner in the image":     {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.RunnerPath = "/usr/bin/toolcall-runner" }), ""},
		"a relative runner path":    {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.RunnerPath = "runner" }), "spec.runnerPath"},
		"a runner path of a folder": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.RunnerPath = "/usr/bin/" }), "spec.runnerPath"},
		"no calls at the same time": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.MaxConcurrentCalls = ptr.To(int32(0)) }), "spec.maxConcurrentCalls"},
		"a relative allowed path":   {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.AllowedPaths = []string{"x"} }), "spec.allowedPaths[0]"},
		"our volume": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) {
			s.Volumes = []corev1.Volume{{Name: "toolcall-runner"}}
		}), "volume names that start with toolcall- are the operator's own"},
		"our label": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) {
			s.PodMetadata = &v1alpha1.PodMetadata{Labels: map[string]string{"toolcall.dev/network": "allowed"}}
		}), "labels of toolcall.dev/"},
		"our annotation": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) {
			s.PodMetadata = &v1alpha1.PodMetadata{Annotations: map[string]string{"toolcall.dev/call": "x"}}
		}), "annotations of toolcall.dev/"},
		"an empty shell":         {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.Shell = []string{""} }), "spec.shell[0]"},
		"an unknown inheritance": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.InheritEnv = "All" }), "spec.inheritEnv"},
		"an interpreter": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) {
			s.Interpreters = map[string]v1alpha1.CommandPrefix{"python": {"python3", "-I"}}
		}), ""},
		"a language in upper case": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) {
			s.Interpreters = map[string]v1alpha1.CommandPrefix{"Python": {"python3", "-I"}}
		}), "write python, not Python"},
		"queues":                       {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.Queues = []string{"agents", "batch.night-1"} }), ""},
		"an empty queue":               {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.Queues = []string{""} }), "spec.queues[0]"},
		"a queue that is no name":      {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.Queues = []string{"a", "b c"} }), "spec.queues[1]"},
		"a queue too long for a label": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.Queues = []string{strings.Repeat("q", 64)} }), "spec.queues[0]"},
		"suspended":                    {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.Suspend = true }), ""},
		"a user namespace":             {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.HostUsers = ptr.To(false) }), ""},
		"sessions": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) {
			s.Sessions = &v1alpha1.SessionLimits{Max: ptr.To(int32(0)), MaxPerCaller: ptr.To(int32(1))}
		}), ""},
		"fewer sessions than none": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) {
			s.Sessions = &v1alpha1.SessionLimits{Max: ptr.To(int32(-1))}
		}), "spec.sessions.max"},
		"no sessions of one's own": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) {
			s.Sessions = &v1alpha1.SessionLimits{MaxPerCaller: ptr.To(int32(0))}
		}), "spec.sessions.maxPerCaller"},
		"no start timeout": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.StartTimeoutSeconds = ptr.To(int32(0)) }), "spec.startTimeoutSeconds"},
	} {
		t.Run(name, func(t *testing.T) { s.attempt(t, a) })
	}
}

// The operator keeps environments and skills in memory: somebody who may create them must not fill it with few.
func TestEnvironmentsAndSkillsAreBoundedInSize(t *testing.T) {
	s := newSpace(t)
	text := strings.Repeat("x", 64<<10)
	for _, make := range []func() client.Object{
		func() client.Object {
			return &v1alpha1.ExecutionEnvironment{Spec: v1alpha1.ExecutionEnvironmentSpec{
				Image: "image:1", Env: []v1alpha1.EnvVar{{Name: "A", Value: text}},
				PodMetadata: &v1alpha1.PodMetadata{Annotations: map[string]string{"example.com/a": text}},
			}}
		},
		func() client.Object {
			return &v1alpha1.Skill{Spec: v1alpha1.SkillSpec{Env: []v1alpha1.EnvVar{{Name: "A", Value: text + text[:60<<10]}}}}
		},
	} {
		s.attempt(t, attempt{make(), ""})
		annotated := make()
		// A character of two bytes counts as two.
		annotated.SetAnnotations(map[string]string{"example.com/a": strings.Repeat("é", 96<<10)})
		s.attempt(t, attempt{annotated, "256 KiB"})
	}
}

// A character of two bytes counts as two.
func TestVariablesOfEnvironmentsAndSkillsAreBoundedInBytes(t *testing.T) {
	s := newSpace(t)
	env := []v1alpha1.EnvVar{{Name: "A", Value: strings.Repeat("é", 70_000)}}
	s.attempt(t, attempt{&v1alpha1.ExecutionEnvironment{Spec: v1alpha1.ExecutionEnvironmentSpec{Image: "i", Env: env}}, "131072 bytes"})
	s.attempt(t, attempt{&v1alpha1.Skill{Spec: v1alpha1.SkillSpec{Env: env}}, "131072 bytes"})
}

func TestRedactOfAVariable(t *testing.T) {
	s := newSpace(t)
	key := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}
	with := func(redact bool, v v1alpha1.EnvVar) []v1alpha1.EnvVar {
		v.Name, v.Redact = "A", ptr.To(redact)
		return []v1alpha1.EnvVar{v}
	}
	const wants = "redact is about the value of a Secret"
	for name, tc := range map[string]struct {
		env  []v1alpha1.EnvVar
		want string
	}{
		"a Secret's value that is shown":    {with(false, v1alpha1.EnvVar{ValueFrom: &v1alpha1.EnvVarSource{SecretKeyRef: key}}), ""},
		"a Secret's value that is redacted": {with(true, v1alpha1.EnvVar{ValueFrom: &v1alpha1.EnvVarSource{SecretKeyRef: key}}), ""},
		"a literal value":                   {with(true, v1alpha1.EnvVar{Value: "x"}), wants},
		"a field of the pod": {with(false, v1alpha1.EnvVar{ValueFrom: &v1alpha1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
		}}), wants},
	} {
		t.Run(name, func(t *testing.T) {
			s.attempt(t, attempt{&v1alpha1.ExecutionEnvironment{Spec: v1alpha1.ExecutionEnvironmentSpec{Image: "i", Env: tc.env}}, tc.want})
			s.attempt(t, attempt{&v1alpha1.Skill{Spec: v1alpha1.SkillSpec{Env: tc.env}}, tc.want})
		})
	}
}

func TestSecretsThatTheAPIServerTakesAndRefuses(t *testing.T) {
	s := newSpace(t)
	with := func(changes ...func(*v1alpha1.ToolSecret)) client.Object {
		env := &v1alpha1.ExecutionEnvironment{Spec: v1alpha1.ExecutionEnvironmentSpec{Image: "i"}}
		for _, change := range changes {
			secret := v1alpha1.ToolSecret{Name: "TOKEN", Tools: []string{"git"}, SecretKeyRef: corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k",
			}}
			change(&secret)
			env.Spec.Secrets = append(env.Spec.Secrets, secret)
		}
		return env
	}
	for name, a := range map[string]attempt{
		"a secret for a tool":           {with(func(*v1alpha1.ToolSecret) {}), ""},
		"a secret in a file":            {with(func(s *v1alpha1.ToolSecret) { s.As, s.Redact = v1alpha1.SecretAsFile, ptr.To(false) }), ""},
		"a secret for no tool":          {with(func(s *v1alpha1.ToolSecret) { s.Tools = []string{} }), "spec.secrets[0].tools"},
		"a secret for a tool twice":     {with(func(s *v1alpha1.ToolSecret) { s.Tools = []string{"git", "git"} }), "spec.secrets[0].tools"},
		"a secret for a nameless tool":  {with(func(s *v1alpha1.ToolSecret) { s.Tools = []string{""} }), "spec.secrets[0].tools"},
		"a secret in another form":      {with(func(s *v1alpha1.ToolSecret) { s.As = "Socket" }), "spec.secrets[0].as"},
		"a secret that is no variable":  {with(func(s *v1alpha1.ToolSecret) { s.Name = "my-token" }), "spec.secrets[0].name"},
		"a secret in the runner's name": {with(func(s *v1alpha1.ToolSecret) { s.Name = "../x" }), "spec.secrets[0].name"},
		"two secrets of one name":       {with(func(*v1alpha1.ToolSecret) {}, func(*v1alpha1.ToolSecret) {}), "spec.secrets[1]"},
	} {
		t.Run(name, func(t *testing.T) { s.attempt(t, a) })
	}
}

// A name that no object can have is a mistake that nothing mends later.
func TestReferencesThatCanBeNames(t *testing.T) {
	s := newSpace(t)
	named := func(name string) map[string]client.Object {
		local := corev1.LocalObjectReference{Name: name}
		key := &corev1.SecretKeySelector{LocalObjectReference: local, Key: "k"}
		from := func(source v1alpha1.EnvVarSource) []v1alpha1.EnvVar {
			return []v1alpha1.EnvVar{{Name: "A", ValueFrom: &source}}
		}
		with := func(spec v1alpha1.ExecutionEnvironmentSpec) client.Object {
			spec.Image = "i"
			return &v1alpha1.ExecutionEnvironment{Spec: spec}
		}
		mounted := func(source corev1.VolumeSource) client.Object {
			return with(v1alpha1.ExecutionEnvironmentSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: source}}})
		}
		call := func(spec v1alpha1.ToolCallSpec) client.Object {
			spec.Shell = &v1alpha1.ShellAction{Command: "true"}
			return &v1alpha1.ToolCall{Spec: spec}
		}
		ref := &v1alpha1.LocalReference{Name: name}
		return map[string]client.Object{
			"the environment of a call":    call(v1alpha1.ToolCallSpec{EnvironmentRef: ref}),
			"the session of a call":        call(v1alpha1.ToolCallSpec{SessionRef: &v1alpha1.SessionReference{Name: name}}),
			"the skill of a call":          call(v1alpha1.ToolCallSpec{SkillRef: ref}),
			"the environment of a session": &v1alpha1.ToolSession{Spec: v1alpha1.ToolSessionSpec{EnvironmentRef: ref}},
			"the skill of a session":       &v1alpha1.ToolSession{Spec: v1alpha1.ToolSessionSpec{SkillRef: ref}},
			"a storage class": &v1alpha1.ToolSession{Spec: v1alpha1.ToolSessionSpec{Workspace: &v1alpha1.SessionWorkspace{
				Size: resource.MustParse("1Gi"), StorageClassName: &name,
			}}},
			"a policy":            with(v1alpha1.ExecutionEnvironmentSpec{PolicyRef: &v1alpha1.PolicyReference{Name: name}}),
			"a service account":   with(v1alpha1.ExecutionEnvironmentSpec{ServiceAccountName: name}),
			"a priority class":    with(v1alpha1.ExecutionEnvironmentSpec{PriorityClassName: name}),
			"a runtime class":     with(v1alpha1.ExecutionEnvironmentSpec{RuntimeClassName: &name}),
			"an image's secret":   with(v1alpha1.ExecutionEnvironmentSpec{ImagePullSecrets: []corev1.LocalObjectReference{local}}),
			"a variable's Secret": with(v1alpha1.ExecutionEnvironmentSpec{Env: from(v1alpha1.EnvVarSource{SecretKeyRef: key})}),
			"a variable's ConfigMap": with(v1alpha1.ExecutionEnvironmentSpec{Env: from(v1alpha1.EnvVarSource{
				ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local, Key: "k"},
			})}),
			"a skill's Secret": &v1alpha1.Skill{Spec: v1alpha1.SkillSpec{Env: from(v1alpha1.EnvVarSource{SecretKeyRef: key})}},
			"a tool's Secret": with(v1alpha1.ExecutionEnvironmentSpec{Secrets: []v1alpha1.ToolSecret{{
				Name: "TOKEN", Tools: []string{"git"}, SecretKeyRef: *key,
			}}}),
			"a mounted Secret":    mounted(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}),
			"a mounted ConfigMap": mounted(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local}}),
			"a mounted claim":     mounted(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}),
		}
	}
	for what, object := range named("a.b-1") {
		t.Run(what, func(t *testing.T) { s.attempt(t, attempt{object, ""}) })
	}
	for _, name := range []string{"a/b", "..", "a%b", "Upper", "a_b", "-a", strings.Repeat("a", 254)} {
		for what, object := range named(name) {
			t.Run(what+" "+name[:min(len(name), 8)], func(t *testing.T) { s.attempt(t, attempt{object, "ame"}) })
		}
	}
}

package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// attempt is one object that the API server takes, or refuses with a message that says what is wrong.
type attempt struct {
	object  client.Object
	refused string
}

func (w *world) attempt(t *testing.T, a attempt) {
	t.Helper()
	if _, cluster := a.object.(*v1alpha1.ExecutionPolicy); !cluster {
		a.object.SetNamespace(w.namespace)
	}
	a.object.SetGenerateName("x-")
	err := w.client.Create(context.Background(), a.object, client.DryRunAll, client.DisableReadYourWritesConsistency)
	switch {
	case a.refused == "" && err != nil:
		t.Errorf("refused: %v", err)
	case a.refused != "" && (err == nil || !strings.Contains(err.Error(), a.refused)):
		t.Errorf("got %v; want an error with %q", err, a.refused)
	}
}

func TestToolCallsThatTheAPIServerTakesAndRefuses(t *testing.T) {
	w := newWorld(t)
	valid := func(change func(*v1alpha1.ToolCallSpec)) client.Object {
		call := &v1alpha1.ToolCall{Spec: v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "ls"}}}
		change(&call.Spec)
		return call
	}
	variable := func(name, value string) func(*v1alpha1.ToolCallSpec) {
		return func(s *v1alpha1.ToolCallSpec) { s.Env = []v1alpha1.CallEnvVar{{Name: name, Value: value}} }
	}
	const four = "set exactly one of structured, shell, code and tool"
	for name, a := range map[string]attempt{
		"structured":   {valid(func(*v1alpha1.ToolCallSpec) {}), ""},
		"empty binary": {valid(func(s *v1alpha1.ToolCallSpec) { s.Structured.Binary = "" }), ""},
		"none of four": {valid(func(s *v1alpha1.ToolCallSpec) { s.Structured = nil }), four},
		"two of four":  {valid(func(s *v1alpha1.ToolCallSpec) { s.Shell = &v1alpha1.ShellAction{Command: "x"} }), four},
		"a tool with any arguments": {valid(func(s *v1alpha1.ToolCallSpec) {
			s.Structured = nil
			s.Tool = &v1alpha1.ToolAction{Name: "bash", Arguments: &runtime.RawExtension{Raw: []byte(`{"command":"ls","deep":{"a":[1,null,true]}}`)}}
		}), ""},
		"tool arguments that are no object": {valid(func(s *v1alpha1.ToolCallSpec) {
			s.Structured = nil
			s.Tool = &v1alpha1.ToolAction{Name: "bash", Arguments: &runtime.RawExtension{Raw: []byte(`[1]`)}}
		}), "must be of type object"},
		"a variable":                     {valid(variable("A_1", "x")), ""},
		"an empty variable":              {valid(variable("A", "")), ""},
		"a variable that starts with 1":  {valid(variable("1A", "x")), "spec.env[0].name"},
		"a function in a variable":       {valid(variable("BASH_FUNC_x%%", "() { :; }")), "spec.env[0].name"},
		"an empty name":                  {valid(variable("", "x")), "spec.env[0].name"},
		"a NUL in a value":               {valid(variable("A", "a\x00b")), "spec.env[0].value"},
		"the same variable twice":        {valid(func(s *v1alpha1.ToolCallSpec) { s.Env = []v1alpha1.CallEnvVar{{Name: "A"}, {Name: "A"}} }), "Duplicate value"},
		"a NUL in the command":           {valid(func(s *v1alpha1.ToolCallSpec) { s.Structured = nil; s.Shell = &v1alpha1.ShellAction{Command: "a\x00"} }), "spec.shell.command"},
		"a NUL in the working directory": {valid(func(s *v1alpha1.ToolCallSpec) { s.WorkingDir = "\x00" }), "spec.workingDir"},
		"128 KiB of variables": {valid(func(s *v1alpha1.ToolCallSpec) {
			s.Env = []v1alpha1.CallEnvVar{{Name: "A", Value: strings.Repeat("x", 65535)}, {Name: "B", Value: strings.Repeat("x", 65535)}}
		}), ""},
		"more than 128 KiB of variables": {valid(func(s *v1alpha1.ToolCallSpec) {
			s.Env = []v1alpha1.CallEnvVar{{Name: "A", Value: strings.Repeat("x", 65536)}, {Name: "B", Value: strings.Repeat("x", 65536)}}
		}), "131072 bytes"},
		"512 KiB of source": {valid(func(s *v1alpha1.ToolCallSpec) {
			s.Structured = nil
			s.Code = &v1alpha1.CodeAction{Language: "python", Source: strings.Repeat("#", 524288)}
		}), ""},
		"more source": {valid(func(s *v1alpha1.ToolCallSpec) {
			s.Structured = nil
			s.Code = &v1alpha1.CodeAction{Language: "python", Source: strings.Repeat("#", 524289)}
		}), "spec.code.source"},
		"a negative timeout": {valid(func(s *v1alpha1.ToolCallSpec) { s.TimeoutSeconds = ptr.To(int32(-1)) }), "spec.timeoutSeconds"},
		"a huge timeout":     {valid(func(s *v1alpha1.ToolCallSpec) { s.TimeoutSeconds = ptr.To(int32(2147483647)) }), ""},
		"no environment name": {valid(func(s *v1alpha1.ToolCallSpec) {
			s.EnvironmentRef = &v1alpha1.LocalReference{}
		}), "spec.environmentRef.name"},
	} {
		t.Run(name, func(t *testing.T) { w.attempt(t, a) })
	}
}

func TestASpecIsImmutableExceptCancel(t *testing.T) {
	w := newWorld(t)
	full := func() *v1alpha1.ToolCall {
		return &v1alpha1.ToolCall{Spec: v1alpha1.ToolCallSpec{
			Tool:           &v1alpha1.ToolAction{Name: "bash", Arguments: &runtime.RawExtension{Raw: []byte(`{"command":"ls"}`)}},
			EnvironmentRef: &v1alpha1.LocalReference{Name: "e"}, SkillRef: &v1alpha1.LocalReference{Name: "s"},
			WorkingDir: "/w", Env: []v1alpha1.CallEnvVar{{Name: "A", Value: "a"}}, Stdin: "in",
			TimeoutSeconds: ptr.To(int32(1)), TTLSecondsAfterFinished: ptr.To(int32(1)),
			RequestedBy: &v1alpha1.Requester{Username: "u"}, Trusted: true,
		}}
	}
	for name, tc := range map[string]struct {
		change  func(*v1alpha1.ToolCallSpec)
		refused string
	}{
		"tool arguments":   {func(s *v1alpha1.ToolCallSpec) { s.Tool.Arguments.Raw = []byte(`{"command":"id"}`) }, "tool is immutable"},
		"tool name":        {func(s *v1alpha1.ToolCallSpec) { s.Tool.Name = "sh" }, "tool is immutable"},
		"another action":   {func(s *v1alpha1.ToolCallSpec) { s.Tool = nil; s.Shell = &v1alpha1.ShellAction{Command: "x"} }, "shell is immutable"},
		"environment":      {func(s *v1alpha1.ToolCallSpec) { s.EnvironmentRef.Name = "x" }, "environmentRef is immutable"},
		"no environment":   {func(s *v1alpha1.ToolCallSpec) { s.EnvironmentRef = nil }, "environmentRef is immutable"},
		"skill":            {func(s *v1alpha1.ToolCallSpec) { s.SkillRef = nil }, "skillRef is immutable"},
		"directory":        {func(s *v1alpha1.ToolCallSpec) { s.WorkingDir = "" }, "workingDir is immutable"},
		"variable":         {func(s *v1alpha1.ToolCallSpec) { s.Env[0].Value = "b" }, "env is immutable"},
		"another variable": {func(s *v1alpha1.ToolCallSpec) { s.Env = append(s.Env, v1alpha1.CallEnvVar{Name: "B"}) }, "env is immutable"},
		"stdin":            {func(s *v1alpha1.ToolCallSpec) { s.Stdin = "out" }, "stdin is immutable"},
		"timeout":          {func(s *v1alpha1.ToolCallSpec) { s.TimeoutSeconds = nil }, "timeoutSeconds is immutable"},
		"ttl":              {func(s *v1alpha1.ToolCallSpec) { s.TTLSecondsAfterFinished = ptr.To(int32(9)) }, "ttlSecondsAfterFinished is immutable"},
		"requester":        {func(s *v1alpha1.ToolCallSpec) { s.RequestedBy.Username = "admin" }, "requestedBy is immutable"},
		"no requester":     {func(s *v1alpha1.ToolCallSpec) { s.RequestedBy = nil }, "requestedBy is immutable"},
		"trusted":          {func(s *v1alpha1.ToolCallSpec) { s.Trusted = false }, "trusted is immutable"},
		"cancel":           {func(s *v1alpha1.ToolCallSpec) { s.Cancel = true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			call := full()
			call.GenerateName = "i-"
			w.create(call)
			tc.change(&call.Spec)
			err := w.client.Update(context.Background(), call)
			if tc.refused == "" && err != nil || tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("got %v; want %q", err, tc.refused)
			}
			if tc.refused != "" {
				return
			}
			call.Spec.Cancel = false
			if err := w.client.Update(context.Background(), call); err == nil || !strings.Contains(err.Error(), "cancel can't be taken back") {
				t.Errorf("cancel was taken back: %v", err)
			}
		})
	}
}

// A client that reads an object into a type and writes it back drops empty values: that changes nothing.
func TestEmptyAndAbsentAreTheSame(t *testing.T) {
	w := newWorld(t)
	call := &unstructured.Unstructured{}
	call.SetAPIVersion(v1alpha1.GroupVersion.String())
	call.SetKind("ToolCall")
	call.SetNamespace(w.namespace)
	call.SetName("empty")
	call.Object["spec"] = map[string]any{
		"structured": map[string]any{"binary": "ls", "args": []any{}}, "env": []any{}, "stdin": "", "workingDir": "", "trusted": false,
		"requestedBy": map[string]any{"username": "u", "uid": "", "groups": []any{}}, "cancel": false,
	}
	if err := w.client.Create(context.Background(), call, client.DisableReadYourWritesConsistency); err != nil {
		t.Fatal(err)
	}
	typed := &v1alpha1.ToolCall{}
	if err := shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(call), typed); err != nil {
		t.Fatal(err)
	}
	typed.Spec.Cancel = true
	if err := w.client.Update(context.Background(), typed); err != nil {
		t.Errorf("cancelled by an update: %v", err)
	}
}

func TestATerminalPhaseNeverChanges(t *testing.T) {
	w := newWorld(t)
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed, v1alpha1.PhaseDenied, v1alpha1.PhaseCancelled} {
		call := w.call(strings.ToLower(string(phase)))
		call.Status.Phase = phase
		if err := w.client.Status().Update(context.Background(), call); err != nil {
			t.Fatal(err)
		}
		for _, next := range []v1alpha1.Phase{v1alpha1.PhaseRunning, v1alpha1.PhasePending, ""} {
			call.Status.Phase = next
			if err := w.client.Status().Update(context.Background(), call); err == nil || !strings.Contains(err.Error(), "a terminal phase never changes") {
				t.Errorf("from %s to %q: %v", phase, next, err)
			}
		}
	}
}

func TestEnvironmentsThatTheAPIServerTakesAndRefuses(t *testing.T) {
	w := newWorld(t)
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
		"no start timeout": {valid(func(s *v1alpha1.ExecutionEnvironmentSpec) { s.StartTimeoutSeconds = ptr.To(int32(0)) }), "spec.startTimeoutSeconds"},
	} {
		t.Run(name, func(t *testing.T) { w.attempt(t, a) })
	}
}

func TestPoliciesThatTheAPIServerTakesAndRefuses(t *testing.T) {
	w := newWorld(t)
	valid := func(change func(*v1alpha1.ExecutionPolicySpec)) client.Object {
		policy := &v1alpha1.ExecutionPolicy{}
		change(&policy.Spec)
		return policy
	}
	seconds := func(d, m int32) func(*v1alpha1.ExecutionPolicySpec) {
		return func(s *v1alpha1.ExecutionPolicySpec) {
			s.Timeouts = &v1alpha1.TimeoutsPolicy{}
			if d > 0 {
				s.Timeouts.DefaultSeconds = &d
			}
			if m > 0 {
				s.Timeouts.MaxSeconds = &m
			}
		}
	}
	for name, a := range map[string]attempt{
		"nothing":              {valid(func(*v1alpha1.ExecutionPolicySpec) {}), ""},
		"both timeouts":        {valid(seconds(10, 20)), ""},
		"default above max":    {valid(seconds(30, 20)), "timeouts.defaultSeconds (120 when unset)"},
		"default above 600":    {valid(seconds(700, 0)), "timeouts.maxSeconds (600 when unset)"},
		"max under 120":        {valid(seconds(0, 60)), "timeouts.defaultSeconds (120 when unset)"},
		"an empty prefix":      {valid(func(s *v1alpha1.ExecutionPolicySpec) { s.EnvBlocklist = []string{""} }), "spec.envBlocklist[0]"},
		"an unknown access":    {valid(func(s *v1alpha1.ExecutionPolicySpec) { s.Access = "open" }), "spec.access"},
		"a star in the middle": {valid(func(s *v1alpha1.ExecutionPolicySpec) { s.ProtectedEnv = []string{"A*B"} }), "spec.protectedEnv[0]"},
		"too much output": {valid(func(s *v1alpha1.ExecutionPolicySpec) {
			s.Output = &v1alpha1.OutputPolicy{MaxBytesPerStream: ptr.To(int32(524289))}
		}), "spec.output.maxBytesPerStream"},
	} {
		t.Run(name, func(t *testing.T) { w.attempt(t, a) })
	}
}

// An empty list isn't an unset one, also after a round trip through a Go client.
func TestEmptyListsStayEmpty(t *testing.T) {
	w := newWorld(t)
	policy := &v1alpha1.ExecutionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("empty-%s", w.namespace)},
		Spec: v1alpha1.ExecutionPolicySpec{
			EnvBlocklist: []string{}, ProtectedEnv: []string{},
			Code: &v1alpha1.CodePolicy{Languages: []string{}, DeniedModules: []string{}},
		},
	}
	if err := w.client.Create(context.Background(), policy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.client.Delete(context.Background(), policy) })
	read := &v1alpha1.ExecutionPolicy{}
	if err := shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(policy), read); err != nil {
		t.Fatal(err)
	}
	s := read.Spec
	if s.EnvBlocklist == nil || s.ProtectedEnv == nil || s.Code.Languages == nil || s.Code.DeniedModules == nil {
		t.Errorf("an empty list came back unset: %+v %+v", s, s.Code)
	}
}

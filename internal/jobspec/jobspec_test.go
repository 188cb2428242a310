package jobspec_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/jobspec"
)

// sealer seals by joining: enough to tell what was sealed.
type sealer struct{ key string }

func (s sealer) Seal(parts ...string) string { return s.key + strings.Join(parts, "|") }
func (s sealer) CheckSeal(seal string, parts ...string) bool {
	return seal == s.Seal(parts...)
}

func call(name string) *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1alpha1.ToolCallSpec{
			Shell: &v1alpha1.ShellAction{Command: "echo secret-command"},
			Env:   []v1alpha1.CallEnvVar{{Name: "MINE", Value: "secret-value"}}, Stdin: "secret-stdin",
		},
	}
}

func input(change ...func(*jobspec.Input)) jobspec.Input {
	in := jobspec.Input{
		Call:        call("c"),
		Environment: &v1alpha1.ExecutionEnvironment{Spec: v1alpha1.ExecutionEnvironmentSpec{Image: "img:1"}},
		Record: &jobspec.Record{
			Environment: "env", TimeoutMilliseconds: 10500, StartTimeoutSeconds: 60, MaxBytesPerStream: 100,
			Plan: envresolve.Plan{Layers: []envresolve.Layer{
				{Source: envresolve.SourceDefault, Vars: []envresolve.Var{{Name: "D", Value: "d"}}},
				{Source: envresolve.SourceCall, Vars: []envresolve.Var{{Name: "MINE", Value: "secret-value"}}},
			}},
		},
		Runtime: jobspec.Runtime{RunnerImage: "runner:1", Endpoints: []string{"a:1", "b:2"}, CA: "ca"},
		Sealer:  sealer{"k"},
	}
	for _, c := range change {
		c(&in)
	}
	return in
}

func build(t *testing.T, change ...func(*jobspec.Input)) *batchv1.Job {
	t.Helper()
	job, err := jobspec.Build(input(change...))
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func TestAJobRunsAtMostOnePodAndEnds(t *testing.T) {
	t.Parallel()
	spec := build(t).Spec
	if *spec.BackoffLimit != 0 || *spec.PodReplacementPolicy != batchv1.Failed || spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("the Job may run its pod again: %+v", spec)
	}
	// 60 s to start, 11 s to run, 5 s of grace, 10 s to report, and slack.
	if got := *spec.ActiveDeadlineSeconds; got < 60+11+5+10 {
		t.Errorf("the Job's deadline of %d s is earlier than the runner's own", got)
	}
	if *spec.TTLSecondsAfterFinished != jobspec.DefaultJobTTLSeconds {
		t.Errorf("the Job stays %d s", *spec.TTLSecondsAfterFinished)
	}
}

func TestBuildingTwiceMakesTheSameJob(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(build(t), build(t)); diff != "" {
		t.Error(diff)
	}
}

func TestNamesAreValidAndTheCallsOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, name := range []string{"a", "a.b", strings.Repeat("a", 253), strings.Repeat("a", 39) + "-.b", "0", strings.Repeat("a.", 126) + "a"} {
		got := jobspec.Name(call(name))
		if problems := validation.IsDNS1123Label(got); len(problems) > 0 {
			t.Errorf("%q is named %q: %v", name, got, problems)
		}
		if seen[got] {
			t.Errorf("%q is used twice", got)
		}
		seen[got] = true
	}
	other := call("a")
	other.UID = "another"
	if jobspec.Name(other) == jobspec.Name(call("a")) {
		t.Error("two calls of one name, one after the other, share a Job")
	}
}

func TestThePodHoldsNeitherCommandNorValuesNorToken(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(build(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"secret-command", "secret-value", "secret-stdin"} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("the Job holds %q", secret)
		}
	}
	for _, v := range build(t).Spec.Template.Spec.Containers[0].Env {
		if strings.HasSuffix(v.Name, "TOKEN") && (v.Value != "" || v.ValueFrom.SecretKeyRef == nil) {
			t.Error("the token stands in the pod")
		}
	}
}

func TestThePodIsAdmittedAsRestricted(t *testing.T) {
	t.Parallel()
	pod := build(t).Spec.Template.Spec
	p, c := pod.SecurityContext, pod.Containers[0].SecurityContext
	if !*p.RunAsNonRoot || *p.RunAsUser == 0 || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("pod security context: %+v", p)
	}
	if *c.AllowPrivilegeEscalation || c.Capabilities.Drop[0] != "ALL" {
		t.Errorf("container security context: %+v", c)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("the pod gets an API token")
	}
	if *pod.EnableServiceLinks {
		t.Error("the namespace's Services are in the variables")
	}
	if pod.Containers[0].Resources.Limits.Memory().IsZero() {
		t.Error("a call may take all memory of its node")
	}
}

func TestWhatTheEnvironmentSaysWinsFieldByField(t *testing.T) {
	t.Parallel()
	job := build(t, func(in *jobspec.Input) {
		e := &in.Environment.Spec
		e.PodSecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To(int64(7))}
		e.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
		e.ServiceAccountName = "sa"
		e.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		e.JobTTLSecondsAfterFinished = ptr.To(int32(0))
		e.PodMetadata = &v1alpha1.PodMetadata{Labels: map[string]string{"team": "x", v1alpha1.LabelManagedBy: "spoof"}, Annotations: map[string]string{"a": "b"}}
	})
	pod := job.Spec.Template
	if *pod.Spec.SecurityContext.RunAsUser != 7 || !*pod.Spec.SecurityContext.RunAsNonRoot {
		t.Errorf("pod security context: %+v", pod.Spec.SecurityContext)
	}
	if c := pod.Spec.Containers[0]; !*c.SecurityContext.ReadOnlyRootFilesystem || *c.SecurityContext.AllowPrivilegeEscalation || c.Resources.Limits.Cpu().Value() != 1 {
		t.Errorf("container: %+v", c)
	}
	if pod.Spec.ServiceAccountName != "sa" || pod.Spec.AutomountServiceAccountToken != nil {
		t.Error("a named account's own setting doesn't hold")
	}
	if pod.Labels["team"] != "x" || pod.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy || pod.Annotations["a"] != "b" {
		t.Errorf("labels %v, annotations %v", pod.Labels, pod.Annotations)
	}
	if *job.Spec.TTLSecondsAfterFinished != 0 {
		t.Error("a Job that should go at once stays")
	}
}

func TestWorkspaceAndTmpAreWritableUnlessTheEnvironmentMountsThem(t *testing.T) {
	t.Parallel()
	paths := func(job *batchv1.Job) map[string]string {
		at := map[string]string{}
		for _, m := range job.Spec.Template.Spec.Containers[0].VolumeMounts {
			at[m.MountPath] = m.Name
		}
		return at
	}
	if at := paths(build(t)); at["/workspace"] == "" || at["/tmp"] == "" {
		t.Errorf("mounts: %v", at)
	}
	at := paths(build(t, func(in *jobspec.Input) {
		in.Environment.Spec.Volumes = []corev1.Volume{{Name: "repo"}}
		in.Environment.Spec.VolumeMounts = []corev1.VolumeMount{{Name: "repo", MountPath: "/workspace/"}}
	}))
	if at["/workspace/"] != "repo" || at["/workspace"] != "" || at["/tmp"] == "" {
		t.Errorf("mounts: %v", at)
	}
}

func TestAnImageWithTheRunnerGetsNothingMounted(t *testing.T) {
	t.Parallel()
	pod := build(t, func(in *jobspec.Input) {
		in.Environment.Spec.RunnerPath = "/usr/bin/toolcall-runner"
		in.Environment.Spec.Volumes = []corev1.Volume{{Name: "repo"}}
		in.Environment.Spec.VolumeMounts = []corev1.VolumeMount{{Name: "repo", MountPath: "/repo"}}
	}).Spec.Template.Spec
	if diff := cmp.Diff([]string{"/usr/bin/toolcall-runner"}, pod.Containers[0].Command); diff != "" {
		t.Error(diff)
	}
	if len(pod.Volumes) != 1 || len(pod.Containers[0].VolumeMounts) != 1 || pod.Volumes[0].Name != "repo" {
		t.Errorf("mounted besides the environment's own: %+v, %+v", pod.Volumes, pod.Containers[0].VolumeMounts)
	}
}

func TestARecordComesBackSealedAndWithoutTheCallsValues(t *testing.T) {
	t.Parallel()
	in := input()
	job := build(t)
	record, ok := jobspec.ReadRecord(job, in.Call, sealer{"k"})
	if !ok || record.TimeoutMilliseconds != 10500 || len(record.Plan.Layers) != 1 {
		t.Fatalf("read %+v, %v", record, ok)
	}
	a := record.Assignment(in.Call, jobspec.Action{Argv: []string{"x"}})
	if len(a.Environment.Layers) != 2 || a.Environment.Layers[1].Vars[0].Value != "secret-value" || string(a.Stdin) != "secret-stdin" {
		t.Errorf("assigned %+v", a)
	}
	for name, change := range map[string]func(*batchv1.Job, *v1alpha1.ToolCall){
		"another call":     func(_ *batchv1.Job, c *v1alpha1.ToolCall) { c.UID = "x" },
		"another plan":     func(j *batchv1.Job, _ *v1alpha1.ToolCall) { j.Annotations[jobspec.AnnotationPlan] = `{}` },
		"another owner":    func(j *batchv1.Job, _ *v1alpha1.ToolCall) { j.OwnerReferences[0].UID = "x" },
		"another name":     func(j *batchv1.Job, _ *v1alpha1.ToolCall) { j.Name = "x" },
		"no plan, no seal": func(j *batchv1.Job, _ *v1alpha1.ToolCall) { j.Annotations = nil },
	} {
		job, c := build(t), call("c")
		change(job, c)
		if _, ok := jobspec.ReadRecord(job, c, sealer{"k"}); ok {
			t.Errorf("%s: believed", name)
		}
	}
	if _, ok := jobspec.ReadRecord(build(t), call("c"), sealer{"other"}); ok {
		t.Error("another operator's seal is believed")
	}
}

func TestARecordThatIsTooLargeIsTheUsersToMend(t *testing.T) {
	t.Parallel()
	_, err := jobspec.Build(input(func(in *jobspec.Input) {
		in.Record.Plan.Layers[0].Vars[0].Value = strings.Repeat("x", jobspec.MaxRecordBytes)
	}))
	if err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("got %v", err)
	}
}

func TestTheCredentialGoesWithItsJob(t *testing.T) {
	t.Parallel()
	job := build(t)
	job.UID = "job-uid"
	secret := jobspec.Credential(job, "token")
	if secret.Name != job.Name || len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].UID != "job-uid" || !*secret.Immutable {
		t.Errorf("made %+v", secret)
	}
}

func TestTheNetworkLabelFollowsTheDecision(t *testing.T) {
	t.Parallel()
	for denied, want := range map[bool]string{true: jobspec.NetworkDenied, false: jobspec.NetworkAllowed} {
		job := build(t, func(in *jobspec.Input) { in.Record.DenyNetwork = denied })
		if got := job.Spec.Template.Labels[jobspec.LabelNetwork]; got != want {
			t.Errorf("denied %v: the label is %q", denied, got)
		}
	}
}

func TestAWaitingPodsJobIsKnownByItsSeal(t *testing.T) {
	t.Parallel()
	waits := func() *batchv1.Job {
		env := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "env", UID: "env-uid"}}
		return jobspec.BuildWarm(jobspec.WarmInput{Environment: env, Name: "tc-warm-env-1"}, "hash", sealer{"k"})
	}
	if job := waits(); !jobspec.Waits(job, sealer{"k"}) || len(job.OwnerReferences) != 0 || job.Annotations[jobspec.AnnotationPool] != "env" {
		t.Errorf("made %+v", job.ObjectMeta)
	}
	for name, change := range map[string]func(*batchv1.Job){
		"another name":        func(j *batchv1.Job) { j.Name = "x" },
		"another namespace":   func(j *batchv1.Job) { j.Namespace = "x" },
		"another environment": func(j *batchv1.Job) { j.Labels[jobspec.LabelPool] = "x" },
		"another template":    func(j *batchv1.Job) { j.Annotations[jobspec.AnnotationTemplate] = "x" },
		"no seal":             func(j *batchv1.Job) { delete(j.Annotations, jobspec.AnnotationSeal) },
		"a call's": func(j *batchv1.Job) {
			if err := jobspec.Adopt(j, call("c"), input().Record, time.Now(), sealer{"k"}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		job := waits()
		change(job)
		if jobspec.Waits(job, sealer{"k"}) {
			t.Errorf("%s: believed", name)
		}
	}
	if jobspec.Waits(waits(), sealer{"other"}) {
		t.Error("another operator's seal is believed")
	}
}

func TestAWaitingPodOutlivesTheOperatorsPodAndNothingElse(t *testing.T) {
	t.Parallel()
	hash := func(change func(*jobspec.WarmInput)) string {
		in := jobspec.WarmInput{
			Environment: &v1alpha1.ExecutionEnvironment{}, Basis: []string{"policy 1"},
			Runtime: jobspec.Runtime{RunnerImage: "runner:1", Endpoints: []string{"pod:1", "service:1"}, CA: "ca"},
		}
		change(&in)
		hash, err := jobspec.TemplateHash(in)
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	same := hash(func(*jobspec.WarmInput) {})
	for name, tc := range map[string]struct {
		change func(*jobspec.WarmInput)
		same   bool
	}{
		"the operator's pod": {func(in *jobspec.WarmInput) { in.Runtime.Endpoints = []string{"next:1", "service:1"} }, true},
		"the Service":        {func(in *jobspec.WarmInput) { in.Runtime.Endpoints = []string{"pod:1", "other:1"} }, false},
		"the only endpoint":  {func(in *jobspec.WarmInput) { in.Runtime.Endpoints = []string{"pod:1"} }, false},
		"the runner":         {func(in *jobspec.WarmInput) { in.Runtime.RunnerImage = "runner:2" }, false},
		"the authority":      {func(in *jobspec.WarmInput) { in.Runtime.CA = "other" }, false},
		"the basis":          {func(in *jobspec.WarmInput) { in.Basis = []string{"policy 2"} }, false},
		"the environment":    {func(in *jobspec.WarmInput) { in.Environment.Spec.Image = "other" }, false},
	} {
		if got := hash(tc.change) == same; got != tc.same {
			t.Errorf("with a change of %s the template is the same: %t", name, got)
		}
	}
}

func TestAnEnvironmentDecidesAboutTheUserNamespace(t *testing.T) {
	t.Parallel()
	for _, want := range []*bool{nil, ptr.To(true), ptr.To(false)} {
		job := build(t, func(in *jobspec.Input) { in.Environment.Spec.HostUsers = want })
		if got := job.Spec.Template.Spec.HostUsers; !ptr.Equal(got, want) {
			t.Errorf("hostUsers is %v; want %v", got, want)
		}
	}
}

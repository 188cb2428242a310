package jobspec_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/network"
)

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
	one, two := build(t), build(t)
	for _, job := range []*batchv1.Job{one, two} {
		// Sealing the same twice doesn't give the same text.
		delete(job.Annotations, jobspec.AnnotationDecision)
	}
	if diff := cmp.Diff(one, two); diff != "" {
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
	for _, secret := range []string{"secret-command", "secret-value", "secret-stdin", "secret-literal"} {
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
		e := &in.Decision.In.Spec
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
		in.Decision.In.Spec.Volumes = []corev1.Volume{{Name: "repo"}}
		in.Decision.In.Spec.VolumeMounts = []corev1.VolumeMount{{Name: "repo", MountPath: "/workspace/"}}
	}))
	if at["/workspace/"] != "repo" || at["/workspace"] != "" || at["/tmp"] == "" {
		t.Errorf("mounts: %v", at)
	}
}

func TestAnImageWithTheRunnerGetsNothingMounted(t *testing.T) {
	t.Parallel()
	pod := build(t, func(in *jobspec.Input) {
		in.Decision.In.Spec.RunnerPath = "/usr/bin/toolcall-runner"
		in.Decision.In.Spec.Volumes = []corev1.Volume{{Name: "repo"}}
		in.Decision.In.Spec.VolumeMounts = []corev1.VolumeMount{{Name: "repo", MountPath: "/repo"}}
	}).Spec.Template.Spec
	if diff := cmp.Diff([]string{"/usr/bin/toolcall-runner"}, pod.Containers[0].Command); diff != "" {
		t.Error(diff)
	}
	if len(pod.Volumes) != 1 || len(pod.Containers[0].VolumeMounts) != 1 || pod.Volumes[0].Name != "repo" {
		t.Errorf("mounted besides the environment's own: %+v, %+v", pod.Volumes, pod.Containers[0].VolumeMounts)
	}
}

func TestADecisionThatIsTooLargeIsTheUsersError(t *testing.T) {
	t.Parallel()
	_, err := jobspec.Build(input(t, func(in *jobspec.Input) {
		in.Decision.Plan.Layers[0].Vars[0].Value = strings.Repeat("x", decide.MaxStoredBytes)
	}))
	if err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("got %v", err)
	}
}

// The deadline of a Job only ends what both the runner and the operator have lost.
func TestTheJobsDeadlineIsTheLastOne(t *testing.T) {
	t.Parallel()
	for milliseconds, seconds := range map[int64]int64{1: 1, 1000: 1, 1001: 2, 10500: 11} {
		job := build(t, func(in *jobspec.Input) { in.Decision.TimeoutMilliseconds = milliseconds })
		start, run := int64(60), jobspec.RunSeconds(milliseconds)
		if got := *job.Spec.ActiveDeadlineSeconds; got != start+run || run <= seconds+jobspec.GraceSeconds {
			t.Errorf("of a call that runs for %d ms: %d s, of which %d to run", milliseconds, got, run)
		}
	}
}

func TestThePodSaysWhoseItIs(t *testing.T) {
	t.Parallel()
	job := build(t)
	if owner := metav1.GetControllerOf(job); owner == nil || owner.Kind != "ToolCall" || owner.Name != "c" || owner.UID != "uid-c" {
		t.Errorf("the Job's owner is %+v", owner)
	}
	for name, labels := range map[string]map[string]string{"Job": job.Labels, "pod": job.Spec.Template.Labels} {
		if labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy || labels[v1alpha1.LabelCall] != "uid-c" {
			t.Errorf("labels of the %s: %v", name, labels)
		}
	}
	if got := job.Spec.Template.Annotations; got[jobspec.AnnotationCall] != "c" || got[jobspec.AnnotationPool] != "" {
		t.Errorf("annotations of the pod: %v", got)
	}
	if job.Spec.Template.Annotations[jobspec.AnnotationDecision] != "" {
		t.Error("the decision is on the pod, too")
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
		job := build(t, func(in *jobspec.Input) { in.Decision.DenyNetwork = denied })
		if got := job.Spec.Template.Labels[jobspec.LabelNetwork]; got != want {
			t.Errorf("denied %v: the label is %q", denied, got)
		}
	}
}

func TestAnEnvironmentDecidesAboutTheUserNamespace(t *testing.T) {
	t.Parallel()
	for _, want := range []*bool{nil, ptr.To(true), ptr.To(false)} {
		job := build(t, func(in *jobspec.Input) { in.Decision.In.Spec.HostUsers = want })
		if got := job.Spec.Template.Spec.HostUsers; !ptr.Equal(got, want) {
			t.Errorf("hostUsers is %v; want %v", got, want)
		}
	}
}

func TestPodsOfRestrictedCallsLookNamesUpInThemselves(t *testing.T) {
	t.Parallel()
	restricted := func(in *jobspec.Input) { in.Decision.Network = &network.Rules{Mode: network.Listed} }
	domain := func(in *jobspec.Input) { in.Runtime.Domain = "cluster.local" }
	pod := build(t, restricted, domain).Spec.Template.Spec
	want := &corev1.PodDNSConfig{
		Nameservers: []string{"127.0.0.1"}, Searches: []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local"},
		Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("5")}, {Name: "use-vc"}},
	}
	if diff := cmp.Diff(want, pod.DNSConfig); diff != "" || pod.DNSPolicy != corev1.DNSNone {
		t.Errorf("policy %s, config (-want +got)\n%s", pod.DNSPolicy, diff)
	}
	hostIPs := func(pod *corev1.PodSpec) bool {
		return slices.ContainsFunc(pod.Containers[0].Env, func(v corev1.EnvVar) bool {
			return v.Name == wire.EnvHostIPs && v.ValueFrom.FieldRef.FieldPath == "status.hostIPs"
		})
	}
	if !hostIPs(&pod) {
		t.Error("the runner doesn't know the node's addresses")
	}
	if open := build(t, domain).Spec.Template.Spec; open.DNSPolicy != "" || open.DNSConfig != nil || hostIPs(&open) {
		t.Errorf("a pod without restrictions: %+v", open)
	}
	if unknown := build(t, restricted).Spec.Template.Spec; unknown.DNSConfig.Searches != nil {
		t.Errorf("without a domain: %v", unknown.DNSConfig.Searches)
	}
}

package jobspec_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/jobspec"
)

func TestADecisionComesBackFromItsJob(t *testing.T) {
	t.Parallel()
	in := input(t)
	got, ok := jobspec.ReadDecision(slimmed(build(t)), in.Call, in.Sealer)
	if !ok {
		t.Fatal("it isn't read")
	}
	want := *in.Decision
	want.Plan.Layers = want.Plan.Layers[:1]
	if diff := cmp.Diff(&want, got, cmpopts.IgnoreFields(decide.Decision{}, "In", "Default", "Policy", "Refs")); diff != "" {
		t.Error(diff)
	}
}

// Who may read Jobs may not read the environment's literals in them.
func TestADecisionCannotBeReadFromItsJob(t *testing.T) {
	t.Parallel()
	job := build(t)
	raw, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	sealed := job.Annotations[jobspec.AnnotationDecision]
	decoded, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(sealed) == 0 {
		t.Fatalf("the annotation is %q: %v", sealed, err)
	}
	for _, secret := range []string{"secret-literal", "secret-value", "secret-command", "secret-stdin", "argvPrefix"} {
		for where, text := range map[string]string{
			"the Job": string(raw), "the decoded annotation": string(decoded),
		} {
			if strings.Contains(text, secret) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(secret))) {
				t.Errorf("%q is in %s", secret, where)
			}
		}
	}
}

// podChanges are what somebody might do to a pod so that other programs start in it, or with other rights.
func podChanges() map[string]func(*corev1.PodSpec) {
	first := func(change func(*corev1.Container)) func(*corev1.PodSpec) {
		return func(pod *corev1.PodSpec) { change(&pod.Containers[0]) }
	}
	exec := corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/evil"}}}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: exec.Exec}}
	return map[string]func(*corev1.PodSpec){
		"another image":                  first(func(c *corev1.Container) { c.Image = "evil:1" }),
		"another command":                first(func(c *corev1.Container) { c.Command = []string{"/evil"} }),
		"no command":                     first(func(c *corev1.Container) { c.Command = nil }),
		"arguments":                      first(func(c *corev1.Container) { c.Args = []string{"-x"} }),
		"another name":                   first(func(c *corev1.Container) { c.Name = "evil" }),
		"one more variable":              first(func(c *corev1.Container) { c.Env = append(c.Env, corev1.EnvVar{Name: "LD_PRELOAD", Value: "/evil.so"}) }),
		"another value":                  first(func(c *corev1.Container) { c.Env[0].Value = "evil:1" }),
		"another order of variables":     first(func(c *corev1.Container) { c.Env[0], c.Env[1] = c.Env[1], c.Env[0] }),
		"a variable less":                first(func(c *corev1.Container) { c.Env = c.Env[1:] }),
		"another Secret":                 first(func(c *corev1.Container) { last(c.Env).ValueFrom.SecretKeyRef.Name = "evil" }),
		"another key":                    first(func(c *corev1.Container) { last(c.Env).ValueFrom.SecretKeyRef.Key = "evil" }),
		"a value in place of a Secret's": first(func(c *corev1.Container) { *last(c.Env) = corev1.EnvVar{Name: last(c.Env).Name, Value: "evil"} }),
		"all of a Secret":                first(func(c *corev1.Container) { c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}} }),
		"one more container": func(pod *corev1.PodSpec) {
			pod.Containers = append(pod.Containers, corev1.Container{Name: "evil", Image: "evil:1"})
		},
		"a container before it":         func(pod *corev1.PodSpec) { pod.InitContainers = []corev1.Container{{Name: "evil", Image: "evil:1"}} },
		"no container":                  func(pod *corev1.PodSpec) { pod.Containers = nil },
		"another account":               func(pod *corev1.PodSpec) { pod.ServiceAccountName = "admin" },
		"a token of its account":        func(pod *corev1.PodSpec) { pod.AutomountServiceAccountToken = ptr.To(true) },
		"the host's network":            func(pod *corev1.PodSpec) { pod.HostNetwork = true },
		"the host's processes":          func(pod *corev1.PodSpec) { pod.HostPID = true },
		"the host's memory":             func(pod *corev1.PodSpec) { pod.HostIPC = true },
		"the host's users":              func(pod *corev1.PodSpec) { pod.HostUsers = ptr.To(true) },
		"processes of other containers": func(pod *corev1.PodSpec) { pod.ShareProcessNamespace = ptr.To(true) },
		"no sandbox":                    func(pod *corev1.PodSpec) { pod.RuntimeClassName = ptr.To("runc") },
		"another user":                  func(pod *corev1.PodSpec) { pod.SecurityContext.RunAsUser = ptr.To(int64(0)) },
		"no seccomp profile":            func(pod *corev1.PodSpec) { pod.SecurityContext.SeccompProfile = nil },
		"no security context":           func(pod *corev1.PodSpec) { pod.SecurityContext = nil },
		"a privileged container":        first(func(c *corev1.Container) { c.SecurityContext.Privileged = ptr.To(true) }),
		"more capabilities":             first(func(c *corev1.Container) { c.SecurityContext.Capabilities = nil }),
		"a hook after its start":        first(func(c *corev1.Container) { c.Lifecycle = &corev1.Lifecycle{PostStart: &exec} }),
		"a hook before its end":         first(func(c *corev1.Container) { c.Lifecycle = &corev1.Lifecycle{PreStop: &exec} }),
		"a device of the machine": first(func(c *corev1.Container) {
			c.VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/disk"}}
		}),
		"a container that goes on":      first(func(c *corev1.Container) { c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways) }),
		"a probe that runs a program":   first(func(c *corev1.Container) { c.StartupProbe = probe }),
		"another probe":                 first(func(c *corev1.Container) { c.LivenessProbe = probe }),
		"a third probe":                 first(func(c *corev1.Container) { c.ReadinessProbe = probe }),
		"another image with the runner": func(pod *corev1.PodSpec) { runnerVolume(pod).Image.Reference = "evil:1" },
		"another source of the runner": func(pod *corev1.PodSpec) {
			*runnerVolume(pod) = corev1.Volume{Name: runnerVolume(pod).Name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}
		},
		"a folder of the host": func(pod *corev1.PodSpec) {
			pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "x", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		},
		"a volume over the image": first(func(c *corev1.Container) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "toolcall-tmp", MountPath: "/usr"})
		}),
		"another volume of the runner": first(func(c *corev1.Container) { mountOfRunner(c).Name = "toolcall-tmp" }),
		"a writable runner":            first(func(c *corev1.Container) { mountOfRunner(c).ReadOnly = false }),
	}
}

func last(env []corev1.EnvVar) *corev1.EnvVar { return &env[len(env)-1] }

func runnerVolume(pod *corev1.PodSpec) *corev1.Volume {
	for i := range pod.Volumes {
		if pod.Volumes[i].Image != nil {
			return &pod.Volumes[i]
		}
	}
	panic("the pod has no volume with the runner")
}

func mountOfRunner(c *corev1.Container) *corev1.VolumeMount {
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].MountPath == "/.toolcall" {
			return &c.VolumeMounts[i]
		}
	}
	panic("the container has no runner")
}

func TestADecisionCountsWithItsOwnPodOnly(t *testing.T) {
	t.Parallel()
	for name, change := range podChanges() {
		job := build(t)
		change(&job.Spec.Template.Spec)
		if _, ok := jobspec.ReadDecision(slimmed(job), call("c"), sealer(t)); ok {
			t.Errorf("with %s: believed", name)
		}
		waiting := buildWarm(t)
		change(&waiting.Spec.Template.Spec)
		if jobspec.IsPoolJob(slimmed(waiting), sealer(t)) {
			t.Errorf("a waiting pod with %s: believed", name)
		}
	}
}

func TestADecisionCountsForItsOwnCallOnly(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*batchv1.Job, *v1alpha1.ToolCall){
		"another call":          func(_ *batchv1.Job, c *v1alpha1.ToolCall) { c.UID = "x" },
		"another owner":         func(j *batchv1.Job, _ *v1alpha1.ToolCall) { j.OwnerReferences[0].UID = "x" },
		"no owner":              func(j *batchv1.Job, _ *v1alpha1.ToolCall) { j.OwnerReferences = nil },
		"an owner among others": func(j *batchv1.Job, _ *v1alpha1.ToolCall) { j.OwnerReferences[0].Controller = nil },
		"another name":          func(j *batchv1.Job, _ *v1alpha1.ToolCall) { j.Name = "x" },
		"another namespace":     func(j *batchv1.Job, c *v1alpha1.ToolCall) { j.Namespace, c.Namespace = "x", "x" },
		"no annotation":         func(j *batchv1.Job, _ *v1alpha1.ToolCall) { j.Annotations = nil },
		"an empty annotation":   func(j *batchv1.Job, _ *v1alpha1.ToolCall) { j.Annotations[jobspec.AnnotationDecision] = "" },
		"a decision in the clear": func(j *batchv1.Job, _ *v1alpha1.ToolCall) {
			j.Annotations[jobspec.AnnotationDecision] = `{"environment":"env"}`
		},
		"a shorter one": func(j *batchv1.Job, _ *v1alpha1.ToolCall) {
			j.Annotations[jobspec.AnnotationDecision] = j.Annotations[jobspec.AnnotationDecision][1:]
		},
		"another call's, of the same pod": func(j *batchv1.Job, _ *v1alpha1.ToolCall) {
			other := build(t, func(in *jobspec.Input) { in.Call = call("other") })
			j.Annotations[jobspec.AnnotationDecision] = other.Annotations[jobspec.AnnotationDecision]
		},
	} {
		job, c := build(t), call("c")
		change(job, c)
		if d, ok := jobspec.ReadDecision(slimmed(job), c, sealer(t)); ok || d != nil {
			t.Errorf("%s: %+v, believed: %t", name, d, ok)
		}
	}
	if _, ok := jobspec.ReadDecision(slimmed(build(t)), call("c"), foreignSealer(t)); ok {
		t.Error("another operator's seal is believed")
	}
}

// The digest of the pod is worked out where the Job is read: what the Job says about it counts for nothing.
func TestADigestInTheJobItselfIsNotBelieved(t *testing.T) {
	t.Parallel()
	honest := slimmed(build(t))
	job := build(t)
	job.Spec.Template.Spec.Containers[0].Image = "evil:1"
	for key, value := range honest.Annotations {
		job.Annotations[key] = value
	}
	if _, ok := jobspec.ReadDecision(slimmed(job), call("c"), sealer(t)); ok {
		t.Error("a call's Job is believed with a digest of its own")
	}
	honest, job = slimmed(buildWarm(t)), buildWarm(t)
	job.Spec.Template.Spec.Containers[0].Image = "evil:1"
	for key, value := range honest.Annotations {
		job.Annotations[key] = value
	}
	if jobspec.IsPoolJob(slimmed(job), sealer(t)) {
		t.Error("a waiting pod's Job is believed with a digest of its own")
	}
}

// harmless are changes by the API server, by Kueue, and by those who may edit Jobs.
func harmless() map[string]func(*batchv1.Job) {
	return map[string]func(*batchv1.Job){
		"defaults of the API server": func(j *batchv1.Job) {
			pod := &j.Spec.Template.Spec
			pod.DNSPolicy, pod.SchedulerName, pod.DeprecatedServiceAccount = corev1.DNSClusterFirst, "default-scheduler", pod.ServiceAccountName
			pod.Containers[0].ImagePullPolicy = corev1.PullIfNotPresent
			for i, v := range pod.Containers[0].Env {
				if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
					pod.Containers[0].Env[i].ValueFrom.FieldRef.APIVersion = "v1"
				}
			}
			j.Spec.Parallelism, j.Spec.Completions, j.Spec.CompletionMode = ptr.To(int32(1)), ptr.To(int32(1)), ptr.To(batchv1.NonIndexedCompletion)
			j.Spec.Template.Labels[batchv1.ControllerUidLabel] = "x"
			j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: "x"}}
		},
		"a queue that holds it back":    func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) },
		"a queue that chooses its node": func(j *batchv1.Job) { j.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "spot"} },
		"a queue that lets it onto a node": func(j *batchv1.Job) {
			j.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "spot"}}
		},
		"a queue that holds its pod": func(j *batchv1.Job) {
			j.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/topology"}}
		},
		"labels and annotations of its pod": func(j *batchv1.Job) {
			j.Spec.Template.Labels["kueue.x-k8s.io/podset"], j.Spec.Template.Annotations["x"] = "main", "y"
		},
		"labels and annotations": func(j *batchv1.Job) { j.Labels["x"], j.Annotations["x"] = "y", "z" },
		"another priority":       func(j *batchv1.Job) { j.Spec.Template.Spec.PriorityClassName = "low" },
		"more memory": func(j *batchv1.Job) {
			j.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
		},
		"another pull secret": func(j *batchv1.Job) {
			j.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "x"}}
		},
		"another deadline":      func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To(int64(1)) },
		"another time to live":  func(j *batchv1.Job) { j.Spec.TTLSecondsAfterFinished = ptr.To(int32(1)) },
		"what became of it":     func(j *batchv1.Job) { j.Status.Failed = 1 },
		"who it is for the API": func(j *batchv1.Job) { j.UID, j.ResourceVersion, j.Generation = "x", "1", 2 },
		"a finalizer":           func(j *batchv1.Job) { j.Finalizers = []string{"x"} },
		"one more owner": func(j *batchv1.Job) {
			j.OwnerReferences = append(j.OwnerReferences, metav1.OwnerReference{Kind: "Workload", UID: "x"})
		},
		"a mark that it had once": func(j *batchv1.Job) { j.Annotations["toolcall.dev/pod-digest"] = "x" },
	}
}

func TestWhatTheClusterDoesToAJobLeavesItsDecision(t *testing.T) {
	t.Parallel()
	for name, change := range harmless() {
		job := build(t)
		change(job)
		if _, ok := jobspec.ReadDecision(slimmed(job), call("c"), sealer(t)); !ok {
			t.Errorf("%s: not believed", name)
		}
		waiting := buildWarm(t)
		change(waiting)
		if !jobspec.IsPoolJob(slimmed(waiting), sealer(t)) {
			t.Errorf("%s of a waiting pod: not believed", name)
		}
	}
}

func TestAWaitingPodsJobIsKnownByItsSeal(t *testing.T) {
	t.Parallel()
	made := slimmed(buildWarm(t))
	if !jobspec.IsPoolJob(made, sealer(t)) || len(made.OwnerReferences) != 0 || jobspec.PoolOf(made) != "env" {
		t.Errorf("made %+v", made.ObjectMeta)
	}
	for name, change := range map[string]func(*batchv1.Job){
		"another name":        func(j *batchv1.Job) { j.Name = "x" },
		"another namespace":   func(j *batchv1.Job) { j.Namespace = "x" },
		"another environment": func(j *batchv1.Job) { j.Labels[jobspec.LabelPool] = "x" },
		"no environment":      func(j *batchv1.Job) { j.Labels = nil },
		"another template":    func(j *batchv1.Job) { j.Annotations[jobspec.AnnotationTemplate] = "x" },
		"no seal":             func(j *batchv1.Job) { delete(j.Annotations, jobspec.AnnotationPoolSeal) },
		"an empty seal":       func(j *batchv1.Job) { j.Annotations[jobspec.AnnotationPoolSeal] = "" },
		"a call's decision as its seal": func(j *batchv1.Job) {
			j.Annotations[jobspec.AnnotationPoolSeal] = build(t).Annotations[jobspec.AnnotationDecision]
		},
		"parts that run together": func(j *batchv1.Job) {
			j.Namespace, j.Name = "n", "s"+j.Name
		},
	} {
		job := buildWarm(t)
		change(job)
		if jobspec.IsPoolJob(slimmed(job), sealer(t)) {
			t.Errorf("%s: believed", name)
		}
	}
	if jobspec.IsPoolJob(slimmed(buildWarm(t)), foreignSealer(t)) {
		t.Error("another operator's seal is believed")
	}
	if jobspec.IsPoolJob(slimmed(build(t)), sealer(t)) {
		t.Error("a call's Job is taken for a pool's")
	}
	if jobspec.IsPoolJob(&batchv1.Job{}, sealer(t)) {
		t.Error("an empty Job is taken for a pool's")
	}
}

// A call that adopts a Job gives it an owner, and takes nothing of what the seal covers: an operator that looks at an
// older version of the Job knows it by its seal all the same.
func TestAnAdoptedJobIsNoPoolsAnyMore(t *testing.T) {
	t.Parallel()
	job := slimmed(buildWarm(t))
	jobspec.Adopt(job, call("c"), input(t).Decision, time.Now())
	if jobspec.PoolOf(job) != "" {
		t.Error("it still belongs to a pool")
	}
	if !jobspec.IsPoolJob(job, sealer(t)) {
		t.Error("the operator doesn't know any more that it made the Job")
	}
	if d, ok := jobspec.ReadDecision(job, call("c"), sealer(t)); ok {
		t.Errorf("it has a decision: %+v", d)
	}
}

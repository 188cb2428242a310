package jobspec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/internal/jobspec"
)

// copied has an init container bring the runner, as on a cluster without image volumes.
func copied(in *jobspec.Input) { in.Runtime.CopyRunner = true }

func copiedWarm(in *jobspec.WarmInput) { in.Runtime.CopyRunner = true }

func TestWithoutImageVolumesAnInitContainerBringsTheRunner(t *testing.T) {
	t.Parallel()
	template := build(t, copied).Spec.Template
	pod := template.Spec
	if template.Annotations["kubectl.kubernetes.io/default-container"] != jobspec.ContainerName {
		t.Errorf("kubectl logs asks for a container: %v", template.Annotations)
	}
	if len(pod.InitContainers) != 1 {
		t.Fatalf("init containers: %+v", pod.InitContainers)
	}
	c := pod.InitContainers[0]
	if c.Name != jobspec.RunnerContainerName || c.Image != "runner:1" || c.RestartPolicy != nil {
		t.Errorf("init container: %+v", c)
	}
	if diff := cmp.Diff([]string{"/runner", "install", "/.toolcall/runner"}, c.Command); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(pod.Containers[0].Command, c.Command[2:]); diff != "" {
		t.Errorf("it copies to another place than the pod starts: %s", diff)
	}
	if len(c.Env)+len(c.EnvFrom) > 0 {
		t.Error("the init container has variables, among them may be the pod's credential")
	}
	for _, v := range pod.Volumes {
		if v.Image != nil {
			t.Errorf("volume %s is an image", v.Name)
		}
		if v.Name == c.VolumeMounts[0].Name && (v.EmptyDir == nil || v.EmptyDir.SizeLimit.IsZero()) {
			t.Errorf("the runner's volume is %+v", v.VolumeSource)
		}
	}
}

// Whoever can write to the runner's volume is the runner of the call, and has the credential of its pod.
func TestTheCallCannotWriteToTheRunnersVolume(t *testing.T) {
	t.Parallel()
	pod := build(t, copied, func(in *jobspec.Input) {
		in.Decision.In.Spec.VolumeMounts = []corev1.VolumeMount{
			{Name: "toolcall-runner", MountPath: "/elsewhere"},
			{Name: "toolcall-runner", MountPath: "/again", SubPath: "x", ReadOnly: true},
		}
	}).Spec.Template.Spec
	mounted := 0
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.Name == pod.InitContainers[0].VolumeMounts[0].Name {
			mounted++
			if !m.ReadOnly {
				t.Errorf("%s is writable", m.MountPath)
			}
		}
	}
	if mounted != 3 {
		t.Errorf("the runner's volume is mounted %d times", mounted)
	}
}

func TestTheInitContainerIsAdmittedAsRestricted(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]change{
		"by default": func(*jobspec.Input) {},
		"whatever the call's container may": func(in *jobspec.Input) {
			in.Decision.In.Spec.SecurityContext = &corev1.SecurityContext{
				Privileged: ptr.To(true), AllowPrivilegeEscalation: ptr.To(true), RunAsUser: ptr.To(int64(0)),
				Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}},
			}
		},
	} {
		pod := build(t, copied, change).Spec.Template.Spec
		c := pod.InitContainers[0].SecurityContext
		if *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || c.Capabilities.Drop[0] != "ALL" || c.Capabilities.Add != nil || c.Privileged != nil || c.RunAsUser != nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// A quota counts the larger of what the init container and the call's container ask for.
func TestTheInitContainerCostsNoQuota(t *testing.T) {
	t.Parallel()
	gpu := corev1.ResourceName("example.com/gpu")
	for name, given := range map[string]corev1.ResourceRequirements{
		"nothing": {},
		"limits":  {Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), gpu: resource.MustParse("1")}},
		"all": {
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Mi"), gpu: resource.MustParse("2")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("1Gi")},
			Claims:   []corev1.ResourceClaim{{Name: "device"}},
		},
		"a claim alone": {Claims: []corev1.ResourceClaim{{Name: "device"}}},
	} {
		pod := build(t, copied, func(in *jobspec.Input) { in.Decision.In.Spec.Resources = given }).Spec.Template.Spec
		main, first := pod.Containers[0].Resources, pod.InitContainers[0].Resources
		for what, lists := range map[string][2]corev1.ResourceList{"requests": {first.Requests, main.Requests}, "limits": {first.Limits, main.Limits}} {
			for resource, quantity := range lists[0] {
				if resource == gpu || quantity.Cmp(lists[1][resource]) != 0 {
					t.Errorf("%s: %s of %s: %s", name, what, resource, quantity.String())
				}
			}
			for _, needed := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if _, ok := lists[1][needed]; ok && lists[0][needed] != lists[1][needed] {
					t.Errorf("%s: %s lack %s, which a quota may ask for", name, what, needed)
				}
			}
		}
		if len(first.Claims) > 0 {
			t.Errorf("%s: it claims %v", name, first.Claims)
		}
	}
}

func TestAnImageWithTheRunnerNeedsNoInitContainer(t *testing.T) {
	t.Parallel()
	pod := build(t, copied, func(in *jobspec.Input) { in.Decision.In.Spec.RunnerPath = "/usr/bin/toolcall-runner" }).Spec.Template.Spec
	if len(pod.InitContainers)+len(pod.Volumes) > 0 {
		t.Errorf("init containers %+v, volumes %+v", pod.InitContainers, pod.Volumes)
	}
}

// A waiting pod, which a session may take too, is made in the same way.
func TestAWaitingPodGetsItsRunnerCopiedToo(t *testing.T) {
	t.Parallel()
	pod := buildWarm(t, copiedWarm).Spec.Template.Spec
	if len(pod.InitContainers) != 1 || !mountOfRunner(&pod.Containers[0]).ReadOnly {
		t.Errorf("%+v", pod)
	}
}

// runnerChanges are what somebody might do so that another program becomes the runner.
func runnerChanges() map[string]func(*corev1.PodSpec) {
	init := func(change func(*corev1.Container)) func(*corev1.PodSpec) {
		return func(pod *corev1.PodSpec) { change(&pod.InitContainers[0]) }
	}
	source := func(source corev1.VolumeSource) func(*corev1.PodSpec) {
		return func(pod *corev1.PodSpec) {
			for i := range pod.Volumes {
				if pod.Volumes[i].Name == "toolcall-runner" {
					pod.Volumes[i].VolumeSource = source
				}
			}
		}
	}
	return map[string]func(*corev1.PodSpec){
		"another image to copy from": init(func(c *corev1.Container) { c.Image = "evil:1" }),
		"another command":            init(func(c *corev1.Container) { c.Command = []string{"/evil"} }),
		"another place":              init(func(c *corev1.Container) { c.Command[2] = "/.toolcall/other" }),
		"arguments":                  init(func(c *corev1.Container) { c.Args = []string{"x"} }),
		"another mount":              init(func(c *corev1.Container) { c.VolumeMounts[0].Name = "toolcall-tmp" }),
		"more rights":                init(func(c *corev1.Container) { c.SecurityContext.Privileged = ptr.To(true) }),
		"no init container":          func(pod *corev1.PodSpec) { pod.InitContainers = nil },
		"one more init container": func(pod *corev1.PodSpec) {
			pod.InitContainers = append(pod.InitContainers, corev1.Container{Name: "evil", Image: "evil:1"})
		},
		"a claim that others write to":   source(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "evil"}}),
		"a folder of the host":           source(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/evil"}}),
		"a ConfigMap":                    source(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}),
		"a driver":                       source(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "evil"}}),
		"another image":                  source(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "evil:1"}}),
		"a volume without bounds":        source(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		"a runner that the call changes": func(pod *corev1.PodSpec) { mountOfRunner(&pod.Containers[0]).ReadOnly = false },
	}
}

func TestADecisionCountsWithTheRunnerThatTheOperatorCopiesOnly(t *testing.T) {
	t.Parallel()
	if _, ok := jobspec.ReadDecision(slimmed(build(t, copied)), call("c"), sealer(t)); !ok {
		t.Error("the operator's own Job isn't believed")
	}
	for name, change := range runnerChanges() {
		job, waiting := build(t, copied), buildWarm(t, copiedWarm)
		for _, j := range []*batchv1.Job{job, waiting} {
			change(&j.Spec.Template.Spec)
		}
		if _, ok := jobspec.ReadDecision(slimmed(job), call("c"), sealer(t)); ok {
			t.Errorf("with %s: believed", name)
		}
		if jobspec.IsPoolJob(slimmed(waiting), sealer(t)) {
			t.Errorf("a waiting pod with %s: believed", name)
		}
	}
}

// After an upgrade of the cluster waiting pods are made anew, and those of before are known as the operator's own.
func TestAPodOutlivesTheChangeToImageVolumes(t *testing.T) {
	t.Parallel()
	hash := func(copied bool) string {
		in := jobspec.WarmInput{Environment: input(t).Decision.In, Runtime: jobspec.Runtime{RunnerImage: "runner:1", CopyRunner: copied}}
		sum, err := jobspec.TemplateHash(in)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	if hash(true) == hash(false) {
		t.Error("a waiting pod isn't replaced")
	}
	for _, job := range []*batchv1.Job{buildWarm(t), buildWarm(t, copiedWarm)} {
		if !jobspec.IsPoolJob(slimmed(job), sealer(t)) {
			t.Error("a waiting pod of before isn't known")
		}
	}
}

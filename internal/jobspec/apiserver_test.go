package jobspec_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/apiservertest"
)

var suite apiservertest.Suite

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// environments are all that an ExecutionEnvironment can say of its pods.
func environments() map[string]v1alpha1.ExecutionEnvironmentSpec {
	volume := func(source corev1.VolumeSource) v1alpha1.ExecutionEnvironmentSpec {
		return v1alpha1.ExecutionEnvironmentSpec{
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: source}}, VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}},
		}
	}
	return map[string]v1alpha1.ExecutionEnvironmentSpec{
		"nothing":                           {},
		"an image that has the runner":      {RunnerPath: "/runner"},
		"the runner, and no volume of ours": {RunnerPath: "/runner", Volumes: []corev1.Volume{}, VolumeMounts: []corev1.VolumeMount{}},
		"an account":                        {ServiceAccountName: "sa"},
		"resources":                         {Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000m"), corev1.ResourceMemory: resource.MustParse("1024Mi")}}},
		"scheduling": {
			NodeSelector: map[string]string{"a": "b"}, Tolerations: []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}},
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}, PriorityClassName: "low", RuntimeClassName: ptr.To("gvisor"),
		},
		"empty security contexts": {SecurityContext: &corev1.SecurityContext{}, PodSecurityContext: &corev1.PodSecurityContext{}},
		"security contexts": {
			SecurityContext: &corev1.SecurityContext{
				ReadOnlyRootFilesystem: ptr.To(true), RunAsUser: ptr.To(int64(7)), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{}, Drop: []corev1.Capability{"ALL"}},
				SELinuxOptions: &corev1.SELinuxOptions{}, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("p")},
				AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault},
			},
			PodSecurityContext: &corev1.PodSecurityContext{
				SupplementalGroups: []int64{}, Sysctls: []corev1.Sysctl{}, SupplementalGroupsPolicy: ptr.To(corev1.SupplementalGroupsPolicyMerge),
				SELinuxOptions: &corev1.SELinuxOptions{Level: "s0"},
			},
		},
		"pull secrets":     {ImagePullSecrets: []corev1.LocalObjectReference{{Name: "s"}}, ImagePullPolicy: corev1.PullAlways},
		"users of its own": {HostUsers: ptr.To(false)},
		"the host's users": {HostUsers: ptr.To(true)},
		"pod metadata":     {PodMetadata: &v1alpha1.PodMetadata{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}}},
		"emptyDir":         volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("1024Mi"))}}),
		"a Secret":         volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}),
		"a ConfigMap":      volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}),
		"a claim":          volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}),
		"a host's path":    volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}),
		"an image":         volume(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "data:1"}}),
		"a projection": volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
		}}}),
		"a driver": volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}),
		"a volume of its own": volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}}}),
		"mounts": {
			Volumes: []corev1.Volume{{Name: "v"}},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "v", MountPath: "/workspace/", SubPath: "a"}, {Name: "v", MountPath: "/b", ReadOnly: true, MountPropagation: ptr.To(corev1.MountPropagationHostToContainer)},
			},
		},
	}
}

// references are all kinds of variables that the kubelet resolves.
func references() []corev1.EnvVar {
	in := corev1.LocalObjectReference{Name: "o"}
	return []corev1.EnvVar{
		{Name: "R1", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: in, Key: "k"}}},
		{Name: "R2", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: in, Key: "k", Optional: ptr.To(false)}}},
		{Name: "R3", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: in, Key: "k", Optional: ptr.To(true)}}},
		{Name: "R4", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
	}
}

// What the API server makes of a Job is the Job that the operator made, whatever the environment says.
func TestAJobIsKnownAfterTheAPIServerHasFilledItIn(t *testing.T) {
	api := suite.Need(t).Admin(t)
	hasImages := hasImageVolumes(t, api)
	for name, spec := range environments() {
		for _, copied := range []bool{false, true} {
			if !hasImages && (name == "an image" || !copied && spec.RunnerPath == "") {
				continue
			}
			t.Run(fmt.Sprintf("%s, copied %t", name, copied), func(t *testing.T) { checkFilledIn(t, api, spec, copied) })
		}
	}
}

// hasImageVolumes says whether the API server knows image volumes, as its operator finds out.
func hasImageVolumes(t *testing.T, api client.Client) bool {
	t.Helper()
	has := jobspec.HasImageVolumes(api.Create(t.Context(), jobspec.ImageVolumeProbe("default"), client.DryRunAll))
	// What it does to a Job that has one is the proof.
	job := build(t, func(in *jobspec.Input) { in.Call.Namespace = "default" })
	if err := api.Create(t.Context(), job, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	kept := slices.ContainsFunc(job.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Image != nil })
	if has != kept {
		t.Fatalf("the probe says %t, a Job kept its image volume: %t", has, kept)
	}
	return has
}

var checked atomic.Int32

func checkFilledIn(t *testing.T, api client.Client, spec v1alpha1.ExecutionEnvironmentSpec, copied bool) {
	c := call(fmt.Sprint("c", checked.Add(1)))
	c.Namespace, spec.Image = "default", "img:1"
	job := build(t, func(in *jobspec.Input) {
		in.Call, in.Decision.In.Spec, in.Decision.Refs, in.Runtime.CopyRunner = c, spec, references(), copied
	})
	warm := buildWarm(t, func(in *jobspec.WarmInput) {
		in.Name, in.Environment.Namespace, in.Environment.Spec, in.Refs, in.Runtime.CopyRunner = "warm-"+c.Name, "default", spec, references(), copied
	})
	for _, made := range []*batchv1.Job{job, warm} {
		made.Spec.Suspend = ptr.To(true)
		if err := api.Create(t.Context(), made); err != nil {
			t.Fatal(err)
		}
	}
	checkKnown(t, "as created", api, job, warm, c)
	for _, made := range []*batchv1.Job{job, warm} {
		letRun(t, api, made)
	}
	checkKnown(t, "let run by a queue", api, job, warm, c)
}

func checkKnown(t *testing.T, name string, api client.Client, job, warm *batchv1.Job, c *v1alpha1.ToolCall) {
	t.Helper()
	if d, ok := jobspec.ReadDecision(readSlim(t, api, job), c, sealer(t)); !ok || d.Environment != "env" {
		t.Errorf("%s: the call's Job isn't known: %+v", name, d)
	}
	if !jobspec.IsPoolJob(readSlim(t, api, warm), sealer(t)) {
		t.Errorf("%s: the waiting pod's Job isn't known", name)
	}
}

func readSlim(t *testing.T, api client.Client, job *batchv1.Job) *batchv1.Job {
	t.Helper()
	read := &batchv1.Job{}
	if err := api.Get(context.Background(), client.ObjectKeyFromObject(job), read); err != nil {
		t.Fatal(err)
	}
	jobspec.Slim(read)
	return read
}

// letRun does to a suspended Job what Kueue does when it admits one.
func letRun(t *testing.T, api client.Client, job *batchv1.Job) {
	t.Helper()
	after := job.DeepCopy()
	template := &after.Spec.Template
	template.Spec.NodeSelector = map[string]string{"flavor": "spot"}
	template.Spec.Tolerations = append(template.Spec.Tolerations, corev1.Toleration{Key: "spot", Operator: corev1.TolerationOpExists})
	template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/topology"}}
	metav1.SetMetaDataLabel(&template.ObjectMeta, "kueue.x-k8s.io/podset", "main")
	metav1.SetMetaDataAnnotation(&template.ObjectMeta, "kueue.x-k8s.io/workload", "w")
	after.Spec.Suspend = ptr.To(false)
	if err := api.Patch(context.Background(), after, client.MergeFrom(job)); err != nil {
		t.Fatal(err)
	}
	if after.UID == types.UID("") || *after.Spec.Suspend {
		t.Fatalf("the Job is %+v", after)
	}
}

// The API server's own Pod Security admission takes both ways in which the runner comes.
func TestTheAPIServerAdmitsThePodAsRestricted(t *testing.T) {
	api := suite.Need(t).Admin(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "restricted", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if err := api.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	podOf := func(copied bool, change func(*corev1.PodSpec)) *corev1.Pod {
		job := build(t, func(in *jobspec.Input) { in.Runtime.CopyRunner = copied })
		change(&job.Spec.Template.Spec)
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "pod"}, Spec: job.Spec.Template.Spec}
	}
	for _, copied := range []bool{false, true} {
		if err := api.Create(t.Context(), podOf(copied, func(*corev1.PodSpec) {}), client.DryRunAll); err != nil {
			t.Errorf("copied %t: %v", copied, err)
		}
	}
	weaker := podOf(true, func(pod *corev1.PodSpec) { pod.InitContainers[0].SecurityContext.AllowPrivilegeEscalation = nil })
	if err := api.Create(t.Context(), weaker, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "PodSecurity") {
		t.Errorf("an init container that may gain privileges: %v", err)
	}
}

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// Whatever keeps a pod from starting, the call ends with the reason, can be created again, and leaves no Job. What
// can be known at once isn't waited for: the start timeout is longer than the tests are patient.
func TestCallsThatCannotStart(t *testing.T) {
	coldFirst(t, testCallsThatCannotStart, wayWarm, wayImage)
}

func testCallsThatCannotStart(t *testing.T, w way) {
	sp := w.newSpace(t)
	for name, test := range map[string]struct {
		adjust  func(*v1alpha1.ExecutionEnvironmentSpec)
		reason  string
		message string
	}{
		"an image that can't be pulled": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) { e.Image = "registry.invalid/no/such:image" },
			v1alpha1.ReasonImagePullFailed, "registry.invalid/no/such:image",
		},
		"an image that isn't there and may not be pulled": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) {
				e.Image, e.ImagePullPolicy = "toolcall.dev/none:dev", corev1.PullNever
			},
			v1alpha1.ReasonImagePullFailed, "toolcall.dev/none:dev",
		},
		"an image with a name that can't be": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) { e.Image = "Not A Name" },
			v1alpha1.ReasonImagePullFailed, "Not A Name",
		},
		"no node fits": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) {
				e.NodeSelector, e.StartTimeoutSeconds = map[string]string{"e2e.toolcall.dev/none": "x"}, ptr.To(int32(8))
			},
			v1alpha1.ReasonUnschedulable, "node affinity/selector",
		},
		"a volume that never comes": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) {
				e.StartTimeoutSeconds = ptr.To(int32(2))
				e.Volumes = []corev1.Volume{{Name: "missing", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "missing"},
				}}}}
				e.VolumeMounts = []corev1.VolumeMount{{Name: "missing", MountPath: "/data"}}
			},
			v1alpha1.ReasonStartTimeout, "did not start within 2 s",
		},
		"Pod Security refuses the pod": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) {
				e.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(true)}
			},
			v1alpha1.ReasonPodRejected, "allowPrivilegeEscalation",
		},
		"the pod can't be: a mount without its volume": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) {
				e.VolumeMounts = []corev1.VolumeMount{{Name: "none", MountPath: "/data"}}
			},
			v1alpha1.ReasonPodRejected, `"none"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := envName(name)
			sp.newEnvironment(t, env, func(e *v1alpha1.ExecutionEnvironment) { test.adjust(&e.Spec) })
			call := sp.run(t, in(env, shell("echo never")))
			expect(t, call, neverRan(test.reason))
			expectMessage(t, call, test.message)
			sp.awaitNoJob(t, call)
		})
	}
}

func TestPodThatQuotaRefuses(t *testing.T) {
	coldFirst(t, testPodThatQuotaRefuses, wayWarm, wayImage)
}

func testPodThatQuotaRefuses(t *testing.T, w way) {
	sp := w.newBareSpace(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	must(t, sp.client.Create(t.Context(), quota))
	sp.await(t, "quota in force", &corev1.ResourceQuotaList{}, isEnforced, named(quota)...)
	sp.newEnvironment(t, defaultEnv, isDefault)
	call := sp.run(t, shell("echo never"))
	expect(t, call, neverRan(v1alpha1.ReasonPodRejected))
	expectMessage(t, call, "exceeded quota: none")
	sp.awaitNoJob(t, call)
}

func TestJobThatQuotaRefuses(t *testing.T) {
	t.Parallel()
	sp := newBareSpace(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/jobs.batch": resource.MustParse("0")}},
	}
	must(t, sp.client.Create(t.Context(), quota))
	sp.await(t, "quota in force", &corev1.ResourceQuotaList{}, isEnforced, named(quota)...)
	sp.newEnvironment(t, defaultEnv, isDefault)
	call := sp.run(t, shell("echo never"))
	expect(t, call, neverRan(v1alpha1.ReasonPodRejected))
	expectMessage(t, call, "exceeded quota: none")
}

func TestReferencesThatLeadNowhere(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	sp.newEnvironment(t, "unruled", func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: "no-such-policy-" + sp.namespace}
	})
	skilled := shell("echo never")
	skilled.SkillRef = &v1alpha1.LocalReference{Name: "nothing"}
	for name, test := range map[string]struct {
		spec            v1alpha1.ToolCallSpec
		reason, message string
	}{
		"an environment": {in("nowhere", shell("echo never")), v1alpha1.ReasonEnvironmentNotFound, `"nowhere"`},
		"a skill":        {skilled, v1alpha1.ReasonSkillNotFound, `"nothing"`},
		"a policy":       {in("unruled", shell("echo never")), v1alpha1.ReasonInvalidPolicy, "no-such-policy-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := sp.run(t, test.spec)
			expect(t, call, neverRan(test.reason))
			expectMessage(t, call, test.message)
			if jobs := sp.jobs(t, call); len(jobs) != 0 {
				t.Errorf("a Job was made: %s", jobs[0].Name)
			}
		})
	}
}

func TestDefaultEnvironments(t *testing.T) {
	coldFirst(t, testDefaultEnvironments, waySession)
}

func testDefaultEnvironments(t *testing.T, w way) {
	sp := w.newBareSpace(t)
	call := sp.run(t, shell("echo never"))
	expect(t, call, neverRan(v1alpha1.ReasonNoEnvironment))
	expectMessage(t, call, "environmentRef", v1alpha1.AnnotationDefaultEnvironment)

	sp.newEnvironment(t, "first", isDefault)
	sp.awaitReady(t, "first", metav1.ConditionTrue, v1alpha1.ReasonReady)
	expect(t, sp.run(t, shell("echo one default")), succeeded("one default\n"))
	second := sp.newEnvironment(t, "second", isDefault)
	for _, name := range []string{"first", "second"} {
		sp.awaitReady(t, name, metav1.ConditionFalse, v1alpha1.ReasonDuplicateDefault)
	}
	call = sp.run(t, shell("echo never"))
	expect(t, call, neverRan(v1alpha1.ReasonInvalidEnvironment))
	expectMessage(t, call, `"first" "second"`)
	must(t, sp.client.Delete(t.Context(), second))
	sp.awaitReady(t, "first", metav1.ConditionTrue, v1alpha1.ReasonReady)
	expect(t, sp.run(t, shell("echo one again")), succeeded("one again\n"))
}

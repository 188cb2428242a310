package calls

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/test/bench/cluster"
)

// Kinds of samples.
const (
	// kindFloor is no workload: a create, the write of somebody who saw it, and the sight of that.
	kindFloor = "Floor"
	kindPod   = "Pod"
	kindJob   = "Job"
	// Calls in a pod of their own, into which the runner is mounted or whose image has it, and in one that waited.
	kindCold  = "Cold"
	kindImage = "Image"
	kindWarm  = "Warm"
	// kindHeld are warm calls whose programs the kernel holds to a list.
	kindHeld = "Held"
)

var (
	allKinds  = []string{kindFloor, kindPod, kindJob, kindCold, kindImage, kindWarm, kindHeld}
	podKinds  = []string{kindPod, kindJob, kindCold, kindImage, kindWarm, kindHeld}
	callKinds = []string{kindCold, kindImage, kindWarm, kindHeld}
)

// titles are what readers call the kinds.
var titles = map[string]string{
	kindFloor: "floor: create, one write by another client, seen",
	kindPod:   "bare Pod",
	kindJob:   "bare Job",
	kindCold:  "cold call",
	kindImage: "cold call, runner in the image",
	kindWarm:  "warm call",
	kindHeld:  "warm call, programs held by the kernel",
}

// answer is what the other client of the floor writes.
const answer = "seen"

// subjectOf is what is measured of a kind; bare pods have that spec.
func subjectOf(kind, namespace string, spec *corev1.PodSpec) cluster.Subject {
	s := cluster.Calls(namespace)
	switch kind {
	case kindFloor:
		s.New = func(at metav1.ObjectMeta) client.Object { return &v1alpha1.Skill{ObjectMeta: at} }
		s.List, s.Done = &v1alpha1.SkillList{}, skillDone
	case kindPod:
		s.New = func(at metav1.ObjectMeta) client.Object { return &corev1.Pod{ObjectMeta: at, Spec: *spec.DeepCopy()} }
		s.List, s.Done = &corev1.PodList{}, podDone
	case kindJob:
		s.New = func(at metav1.ObjectMeta) client.Object { return bareJob(at, spec) }
		s.List, s.Done = &batchv1.JobList{}, jobDone
	}
	return s
}

// unsealed stands in for the operator's identity: the Job that it would seal is never created.
type unsealed struct{}

func (unsealed) Seal(...string) string                     { return "" }
func (unsealed) CheckSeal(string, ...string) bool          { return false }
func (unsealed) Encrypt([]byte, ...string) (string, error) { return "", nil }
func (unsealed) Decrypt(string, ...string) ([]byte, error) { return nil, nil }

// bareSpec is the pod that the operator makes in that environment, with the command in place of the runner,
// and without the volumes and variables that only the runner needs.
func bareSpec(env *v1alpha1.ExecutionEnvironment) (*corev1.PodSpec, error) {
	job, err := jobspec.Build(jobspec.Input{
		Call:     &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Name: "bare"}},
		Decision: &decide.Decision{In: env},
		Sealer:   unsealed{},
	})
	if err != nil {
		return nil, fmt.Errorf("build the operator's pod: %w", err)
	}
	spec := &job.Spec.Template.Spec
	spec.Volumes = nil
	container := &spec.Containers[0]
	container.Env, container.VolumeMounts = nil, nil
	container.Command = []string{"true"}
	return spec, nil
}

func bareJob(at metav1.ObjectMeta, spec *corev1.PodSpec) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: at, Spec: batchv1.JobSpec{
		BackoffLimit: ptr.To(int32(0)),
		Template:     corev1.PodTemplateSpec{Spec: *spec.DeepCopy()},
	}}
}

func skillDone(o client.Object) (bool, error) {
	return o.(*v1alpha1.Skill).Spec.Description == answer, nil
}

func podDone(o client.Object) (bool, error) {
	status := o.(*corev1.Pod).Status
	if status.Phase == corev1.PodFailed {
		return false, fmt.Errorf("the Pod failed: %s %s", status.Reason, status.Message)
	}
	return status.Phase == corev1.PodSucceeded, nil
}

func jobDone(o client.Object) (bool, error) {
	for _, c := range o.(*batchv1.Job).Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete:
			return true, nil
		case batchv1.JobFailed:
			return false, fmt.Errorf("the Job failed: %s: %s", c.Reason, c.Message)
		}
	}
	return false, nil
}

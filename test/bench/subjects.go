package main

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
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
)

var (
	allKinds  = []string{kindFloor, kindPod, kindJob, kindCold, kindImage, kindWarm}
	podKinds  = []string{kindPod, kindJob, kindCold, kindImage, kindWarm}
	callKinds = []string{kindCold, kindImage, kindWarm}
)

// titles are what readers call the kinds.
var titles = map[string]string{
	kindFloor: "floor: create, one write by another client, seen",
	kindPod:   "bare Pod",
	kindJob:   "bare Job",
	kindCold:  "cold call",
	kindImage: "cold call, runner in the image",
	kindWarm:  "warm call",
}

// subject is something to be measured.
type subject struct {
	kind  string
	place *place
	// make builds the object to create.
	make func(name string) client.Object
	// list is what a watch is opened on.
	list func() client.ObjectList
	// done says that the object has ended as it should; the error, that it ended otherwise.
	done func(client.Object) (bool, error)
}

// newSubjects are what a round measures, in order.
func newSubjects(o *options, places map[string]*place) ([]subject, error) {
	spec, err := bareSpec(environment("bare", "bare", o.image))
	if err != nil {
		return nil, err
	}
	var all []subject
	for _, kind := range allKinds {
		if p := places[kind]; p != nil {
			all = append(all, newSubject(kind, p, spec))
		}
	}
	return all, nil
}

func newSubject(kind string, p *place, spec *corev1.PodSpec) subject {
	s := subject{kind: kind, place: p}
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: p.namespace, Name: name} }
	switch kind {
	case kindFloor:
		s.make = func(name string) client.Object { return &v1alpha1.Skill{ObjectMeta: at(name)} }
		s.list = func() client.ObjectList { return &v1alpha1.SkillList{} }
		s.done = skillDone
	case kindPod:
		s.make = func(name string) client.Object { return &corev1.Pod{ObjectMeta: at(name), Spec: *spec.DeepCopy()} }
		s.list = func() client.ObjectList { return &corev1.PodList{} }
		s.done = podDone
	case kindJob:
		s.make = func(name string) client.Object { return bareJob(at(name), spec) }
		s.list = func() client.ObjectList { return &batchv1.JobList{} }
		s.done = jobDone
	default:
		s.make = func(name string) client.Object { return call(at(name), p.environment.Name) }
		s.list = func() client.ObjectList { return &v1alpha1.ToolCallList{} }
		s.done = callDone
	}
	return s
}

// unsealed stands in for the operator's identity: the Job that it would seal is never created.
type unsealed struct{}

func (unsealed) Seal(...string) string            { return "" }
func (unsealed) CheckSeal(string, ...string) bool { return false }

// bareSpec is the pod that the operator makes in that environment, with the command in place of the runner,
// and without the volumes and variables that only the runner needs.
func bareSpec(env *v1alpha1.ExecutionEnvironment) (*corev1.PodSpec, error) {
	job, err := jobspec.Build(jobspec.Input{
		Call:        &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Name: "bare"}},
		Environment: env,
		Record:      &jobspec.Record{},
		Sealer:      unsealed{},
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

func call(at metav1.ObjectMeta, environment string) *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{ObjectMeta: at, Spec: v1alpha1.ToolCallSpec{
		Structured:     &v1alpha1.StructuredAction{Binary: "true"},
		EnvironmentRef: &v1alpha1.LocalReference{Name: environment},
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

func callDone(o client.Object) (bool, error) {
	status := o.(*v1alpha1.ToolCall).Status
	if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionFinished) {
		return false, nil
	}
	if status.Phase != v1alpha1.PhaseSucceeded {
		return false, fmt.Errorf("the call ended %s/%s: %s", status.Phase, status.Reason, status.Message)
	}
	return true, nil
}

package calls

import (
	"context"
	"fmt"
	"sync/atomic"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/measure"
)

// runnerPath is where the image with the runner has it.
const runnerPath = "/usr/local/bin/toolcall-runner"

// kind is what has a pod for each sample.
type kind struct {
	title string
	// room names its namespace.
	room string
	list client.ObjectList
	done cluster.Done
	// bare is an object that isn't a call, of pods of that spec.
	bare func(at metav1.ObjectMeta, spec *corev1.PodSpec) client.Object
	// warm calls take waiting pods. The images of others have the runner.
	warm, withRunner bool
	policy           v1alpha1.ExecutionPolicySpec
}

var (
	barePod = kind{
		title: "bare Pod", room: "pod", list: &corev1.PodList{}, done: podDone,
		bare: func(at metav1.ObjectMeta, spec *corev1.PodSpec) client.Object {
			return &corev1.Pod{ObjectMeta: at, Spec: *spec.DeepCopy()}
		},
	}
	bareJob = kind{
		title: "bare Job", room: "job", list: &batchv1.JobList{}, done: jobDone,
		bare: func(at metav1.ObjectMeta, spec *corev1.PodSpec) client.Object {
			return &batchv1.Job{ObjectMeta: at, Spec: batchv1.JobSpec{
				BackoffLimit: ptr.To(int32(0)),
				Template:     corev1.PodTemplateSpec{Spec: *spec.DeepCopy()},
			}}
		},
	}
	// Calls in a pod of their own, into which the runner is mounted or whose image has it, and in one that waited.
	coldCall  = kind{title: "cold call", room: "cold", list: &v1alpha1.ToolCallList{}, done: cluster.CallDone}
	imageCall = kind{
		title: "cold call, runner in the image", room: "image", list: &v1alpha1.ToolCallList{}, done: cluster.CallDone, withRunner: true,
	}
	warmCall = kind{title: "warm call", room: "warm", list: &v1alpha1.ToolCallList{}, done: cluster.CallDone, warm: true}
	// heldCall is one whose programs the kernel holds to a list.
	heldCall = kind{
		title: "warm call, programs held by the kernel", room: "held", list: &v1alpha1.ToolCallList{}, done: cluster.CallDone, warm: true,
		policy: v1alpha1.ExecutionPolicySpec{
			Access:   v1alpha1.AccessOpen,
			Binaries: &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Allowed: []string{"true", "ls", "git", "python3"}},
		},
	}
)

// producer makes objects of a kind in a room of its own.
type producer struct {
	kind
	*room
	tracker *cluster.Tracker
	spec    *corev1.PodSpec
	// all are those that have ended, tookWarm those of them that had a waiting pod.
	all, tookWarm atomic.Int64
}

// newProducer makes the room, where warm calls have that many waiting pods.
func (p *part) newProducer(ctx context.Context, k kind, pool int) (_ *producer, err error) {
	o := &producer{kind: k}
	if o.spec, err = bareSpec(p.image); err != nil {
		return nil, err
	}
	if k.bare != nil {
		o.room, err = p.newRoom(ctx, k.room)
	} else {
		o.room, err = p.newCallRoom(ctx, k.room, k.policy, func(e *v1alpha1.ExecutionEnvironmentSpec) {
			if k.warm {
				e.WarmPool = &v1alpha1.WarmPool{Size: int32(pool)}
			}
			if k.withRunner {
				e.Image, e.RunnerPath = p.withRunner, runnerPath
			}
		})
	}
	if err != nil {
		return nil, err
	}
	if o.tracker, err = p.track(ctx, o.namespace, k.list, k.done); err != nil {
		return nil, err
	}
	return o, o.clear(ctx)
}

// track opens a watch until the part's end.
func (p *part) track(ctx context.Context, namespace string, list client.ObjectList, done cluster.Done) (*cluster.Tracker, error) {
	t, err := cluster.Track(ctx, p.client, namespace, list, done)
	if err != nil {
		return nil, err
	}
	p.stops = append(p.stops, t.Stop)
	return t, nil
}

// make makes the object of that name.
func (o *producer) make(name string) client.Object {
	if o.bare != nil {
		return o.bare(metav1.ObjectMeta{Namespace: o.namespace, Name: name}, o.spec)
	}
	return cluster.NewCall(o.namespace, name)
}

// run creates the object of that name, and sees its end.
func (o *producer) run(ctx context.Context, name string) error {
	return o.count(o.tracker.Run(ctx, o.make(name)))
}

// count counts an object that has ended, unless there is an error.
func (o *producer) count(ended client.Object, err error) error {
	if err != nil {
		return err
	}
	o.all.Add(1)
	if call, ok := ended.(*v1alpha1.ToolCall); ok && call.Status.Timings != nil && call.Status.Timings.Path == v1alpha1.PathWarm {
		o.tookWarm.Add(1)
	}
	return nil
}

func (o *producer) clear(ctx context.Context) error { return o.room.clear(ctx, o.make("")) }

// addWarmShare reports how many of the warm calls had a waiting pod.
func (p *part) addWarmShare(name string, o *producer) {
	if o != nil && o.warm && o.all.Load() > 0 {
		share := 100 * float64(o.tookWarm.Load()) / float64(o.all.Load())
		p.report.Add(p.name, name, "% took a waiting pod", []float64{share})
	}
}

// unsealed stands in for the operator's identity: the Job that it would seal is never created.
type unsealed struct{}

func (unsealed) Seal(...string) string                     { return "" }
func (unsealed) CheckSeal(string, ...string) bool          { return false }
func (unsealed) Encrypt([]byte, ...string) (string, error) { return "", nil }
func (unsealed) Decrypt(string, ...string) ([]byte, error) { return nil, nil }

// bareSpec is the pod that the operator makes in an environment with that image, with the command in place of the runner,
// and without the volumes and variables that only the runner needs.
func bareSpec(image string) (*corev1.PodSpec, error) {
	job, err := jobspec.Build(jobspec.Input{
		Call:     &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Name: "bare"}},
		Decision: &decide.Decision{In: cluster.NewEnvironment("bare", "bare", image)},
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

// scenarioPool is how many pods wait for warm calls that come one at a time.
const scenarioPool = 2

// scenario is one object of a kind at a time.
func (p *part) scenario(k kind, each int, against ...string) *measure.Scenario {
	var o *producer
	return &measure.Scenario{
		Name: k.title, Against: against, Each: each,
		Prepare: func(ctx context.Context) (err error) {
			o, err = p.newProducer(ctx, k, scenarioPool)
			return err
		},
		Operate: func(ctx context.Context, n int) error { return o.run(ctx, fmt.Sprintf("one-%06d", n)) },
		Clear:   func(ctx context.Context) error { return o.clear(ctx) },
	}
}

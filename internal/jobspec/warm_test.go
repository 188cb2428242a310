package jobspec_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

func TestAWaitingPodOutlivesTheOperatorsPodAndNothingElse(t *testing.T) {
	t.Parallel()
	hash := func(change func(*jobspec.WarmInput)) string {
		in := jobspec.WarmInput{
			Environment: &v1alpha1.ExecutionEnvironment{}, Default: &v1alpha1.ExecutionEnvironment{}, ReplaceOn: []string{"policy 1"},
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
		"the operator's pod":     {func(in *jobspec.WarmInput) { in.Runtime.Endpoints = []string{"next:1", "service:1"} }, true},
		"the Service":            {func(in *jobspec.WarmInput) { in.Runtime.Endpoints = []string{"pod:1", "other:1"} }, false},
		"the only endpoint":      {func(in *jobspec.WarmInput) { in.Runtime.Endpoints = []string{"pod:1"} }, false},
		"the runner":             {func(in *jobspec.WarmInput) { in.Runtime.RunnerImage = "runner:2" }, false},
		"the users":              {func(in *jobspec.WarmInput) { in.Runtime.Users = jobspec.UserRange{First: 1, Last: 1 << 30} }, false},
		"the authority":          {func(in *jobspec.WarmInput) { in.Runtime.CA = "other" }, false},
		"what it is replaced on": {func(in *jobspec.WarmInput) { in.ReplaceOn = []string{"policy 2"} }, false},
		"the references":         {func(in *jobspec.WarmInput) { in.Refs = []corev1.EnvVar{reference()} }, false},
		"the environment":        {func(in *jobspec.WarmInput) { in.Environment.Spec.Image = "other" }, false},
		"another of that name":   {func(in *jobspec.WarmInput) { in.Environment.UID = "other" }, false},
		"its generation":         {func(in *jobspec.WarmInput) { in.Environment.Generation = 2 }, true},
		"its pool's size":        {func(in *jobspec.WarmInput) { in.Environment.Spec.WarmPool = &v1alpha1.WarmPool{Size: 9} }, true},
		"its calls at once":      {func(in *jobspec.WarmInput) { in.Environment.Spec.MaxConcurrentCalls = ptr.To(int32(9)) }, true},
		"its finished calls":     {func(in *jobspec.WarmInput) { in.Environment.Spec.TTLSecondsAfterFinished = ptr.To(int32(9)) }, true},
		"its calls' start":       {func(in *jobspec.WarmInput) { in.Environment.Spec.StartTimeoutSeconds = ptr.To(int32(9)) }, true},
		"its status":             {func(in *jobspec.WarmInput) { in.Environment.Status.ActiveCalls = 9 }, true},
		"the name of one pod":    {func(in *jobspec.WarmInput) { in.Name = "tc-warm-1" }, true},
		"one of its labels":      {func(in *jobspec.WarmInput) { in.Environment.Labels = map[string]string{"team": "x"} }, true},
		"its queue":              {func(in *jobspec.WarmInput) { in.Environment.Spec.Queues = []string{"x"} }, false},
		"its suspension":         {func(in *jobspec.WarmInput) { in.Environment.Spec.Suspend = true }, true},
		"its sessions":           {func(in *jobspec.WarmInput) { in.Environment.Spec.Sessions = &v1alpha1.SessionLimits{} }, true},
		"another default one":    {func(in *jobspec.WarmInput) { in.Default.UID = "other" }, false},
		"the default's values":   {func(in *jobspec.WarmInput) { in.Default.Spec.Env = []v1alpha1.EnvVar{{Name: "A"}} }, false},
		"the default's pool":     {func(in *jobspec.WarmInput) { in.Default.Spec.WarmPool = &v1alpha1.WarmPool{Size: 9} }, true},
		"the default's suspend":  {func(in *jobspec.WarmInput) { in.Default.Spec.Suspend, in.Default.Generation = true, 2 }, true},
		"its host's users":       {func(in *jobspec.WarmInput) { in.Environment.Spec.HostUsers = ptr.To(false) }, false},
		"its priority in a queue": {func(in *jobspec.WarmInput) {
			in.Environment.Labels = map[string]string{jobspec.LabelQueuePriority: "x"}
		}, false},
	} {
		if got := hash(tc.change) == same; got != tc.same {
			t.Errorf("with a change of %s the template is the same: %t", name, got)
		}
	}
}

func TestHashingChangesNothing(t *testing.T) {
	t.Parallel()
	env := &v1alpha1.ExecutionEnvironment{Spec: v1alpha1.ExecutionEnvironmentSpec{WarmPool: &v1alpha1.WarmPool{Size: 1}, StartTimeoutSeconds: ptr.To(int32(1))}}
	in := jobspec.WarmInput{Environment: env, Name: "n", Runtime: jobspec.Runtime{Endpoints: []string{"a", "b"}}}
	if _, err := jobspec.TemplateHash(in); err != nil {
		t.Fatal(err)
	}
	if env.Spec.WarmPool == nil || env.Spec.StartTimeoutSeconds == nil || in.Name != "n" || len(in.Runtime.Endpoints) != 2 {
		t.Errorf("changed: %+v", in)
	}
}

func TestAWaitingPodWaitsWithoutADeadline(t *testing.T) {
	t.Parallel()
	job := buildWarm(t)
	if job.Spec.ActiveDeadlineSeconds != nil || len(job.OwnerReferences) != 0 {
		t.Errorf("deadline %v, owners %v", job.Spec.ActiveDeadlineSeconds, job.OwnerReferences)
	}
	pod := job.Spec.Template
	if pod.Annotations[jobspec.AnnotationPool] != "env" || pod.Annotations[jobspec.AnnotationCall] != "" || pod.Labels[jobspec.LabelNetwork] != jobspec.NetworkAllowed {
		t.Errorf("the pod has %v, %v", pod.Labels, pod.Annotations)
	}
	if *job.Spec.BackoffLimit != 0 || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Error("the pod may run again")
	}
}

func TestAnAdoptedJobGoesWithItsCallAndEndsWithIt(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	in := input(t)
	run := *build(t).Spec.ActiveDeadlineSeconds
	for name, tc := range map[string]struct {
		created, started time.Time
		want             int64
	}{
		"a pod that has waited for an hour":       {now.Add(-2 * time.Hour), now.Add(-time.Hour), 3601 + run},
		"a pod that has just started":             {now, now, 1 + run},
		"a Job whose start isn't known":           {now.Add(-time.Minute), time.Time{}, 61 + run},
		"a start that another clock calls future": {now, now.Add(time.Minute), run},
	} {
		job := buildWarm(t)
		job.CreationTimestamp = metav1.NewTime(tc.created)
		if !tc.started.IsZero() {
			job.Status.StartTime = ptr.To(metav1.NewTime(tc.started))
		}
		jobspec.Adopt(job, in.Call, in.Decision, now)
		if got := *job.Spec.ActiveDeadlineSeconds; got != tc.want {
			t.Errorf("%s: the deadline is %d s, want %d", name, got, tc.want)
		}
		owner := metav1.GetControllerOf(job)
		if owner == nil || owner.UID != in.Call.UID || job.Labels[v1alpha1.LabelCall] != string(in.Call.UID) || job.Labels[jobspec.LabelPool] != "env-uid" {
			t.Errorf("%s: owner %+v, labels %v", name, owner, job.Labels)
		}
	}
}

// The decision can't be read any more: the call ends without running, and its Job goes with it.
func TestAJobIsAdoptedWithoutADecisionToo(t *testing.T) {
	t.Parallel()
	job := buildWarm(t)
	job.Labels = nil
	jobspec.Adopt(job, call("c"), nil, time.Now())
	if job.Spec.ActiveDeadlineSeconds != nil || metav1.GetControllerOf(job) == nil || job.Labels[v1alpha1.LabelCall] != "uid-c" {
		t.Errorf("got %+v", job)
	}
}

func TestOnlyAJobWithoutAnOwnerBelongsToAPool(t *testing.T) {
	t.Parallel()
	owned := buildWarm(t)
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "Other", Controller: ptr.To(true)}}
	held := buildWarm(t)
	held.OwnerReferences = []metav1.OwnerReference{{Kind: "Workload"}}
	for name, tc := range map[string]struct {
		job  *batchv1.Job
		want string
	}{
		"a waiting pod's Job":              {buildWarm(t), "env"},
		"one that a call has":              {adopted(t), ""},
		"one that somebody else has":       {owned, ""},
		"one that somebody else refers to": {held, "env"},
		"a call's own Job":                 {build(t), ""},
		"an empty Job":                     {&batchv1.Job{}, ""},
	} {
		if got := jobspec.PoolOf(tc.job); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestNamesOfWaitingPodsAreValidAndUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, name := range []string{"a", "a.b", strings.Repeat("a", 253), strings.Repeat("a", 33) + "-.b", strings.Repeat("a.", 126) + "a"} {
		env := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"}}
		for i := range 10 {
			got := jobspec.WarmName(env, fmt.Sprint(i))
			if problems := validation.IsDNS1123Label(got); len(problems) > 0 {
				t.Errorf("%q is named %q: %v", name, got, problems)
			}
			if seen[got] {
				t.Errorf("%q is used twice", got)
			}
			seen[got] = true
		}
	}
	one := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}
	two := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "2"}}
	if jobspec.WarmName(one, "x") == jobspec.WarmName(two, "x") {
		t.Error("two environments of one name share a pod's name")
	}
}

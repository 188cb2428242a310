package jobspec_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

func TestTheEnvironmentSaysWhichQueuesItsCallsMayChoose(t *testing.T) {
	t.Parallel()
	low := map[string]string{jobspec.LabelQueuePriority: "low", jobspec.LabelQueue: "label", "team": "x"}
	wants := func(queue string) map[string]string {
		return map[string]string{jobspec.LabelQueue: queue, jobspec.LabelQueuePriority: "high", "team": "y"}
	}
	type queued struct{ Queue, Priority string }
	for name, tc := range map[string]struct {
		env, call map[string]string
		queues    []string
		want      queued
	}{
		"no queues":                     {},
		"a label of the environment's":  {env: low, want: queued{Priority: "low"}},
		"the first":                     {env: low, queues: []string{"own", "other"}, want: queued{"own", "low"}},
		"one where none is":             {call: wants("other")},
		"a call's, another one offered": {env: low, queues: []string{"own", "others", "an"}, call: wants("other"), want: queued{"own", "low"}},
		"a call's, offered":             {env: low, queues: []string{"own", "first", "other"}, call: wants("other"), want: queued{"other", "low"}},
		"the only one":                  {queues: []string{"other"}, call: wants("other"), want: queued{Queue: "other"}},
		"the first by the call":         {env: low, queues: []string{"own", "other"}, call: wants("own"), want: queued{"own", "low"}},
		"an empty one":                  {env: low, queues: []string{"own", "other"}, call: wants(""), want: queued{"own", "low"}},
	} {
		job := build(t, func(in *jobspec.Input) {
			in.Decision.In.Labels, in.Call.Labels, in.Decision.In.Spec.Queues = tc.env, tc.call, tc.queues
		})
		got := queued{job.Labels[jobspec.LabelQueue], job.Labels[jobspec.LabelQueuePriority]}
		if got != tc.want || job.Labels["team"] != "" || job.Spec.Template.Labels[jobspec.LabelQueue] != "" {
			t.Errorf("%s: got %+v of %v, want %+v", name, got, job.Labels, tc.want)
		}
	}
}

func TestAPodThatWaitsIsOfItsEnvironmentsFirstQueue(t *testing.T) {
	t.Parallel()
	hash := func(labels map[string]string, queues ...string) string {
		env := &v1alpha1.ExecutionEnvironment{Spec: v1alpha1.ExecutionEnvironmentSpec{Queues: queues}}
		env.Labels = labels
		sum, err := jobspec.TemplateHash(jobspec.WarmInput{Environment: env})
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	plain := hash(nil)
	if hash(map[string]string{"team": "x", jobspec.LabelQueue: "1"}) != plain {
		t.Error("a label that means nothing replaces waiting pods")
	}
	one, two := hash(nil, "1"), hash(nil, "2")
	if one == plain || one == two || one == hash(map[string]string{jobspec.LabelQueuePriority: "low"}, "1") {
		t.Error("another queue or priority doesn't replace waiting pods")
	}
	if one != hash(nil, "1", "2") {
		t.Error("a queue that only a call can choose replaces waiting pods")
	}
}

// A pod of the pool is found by what the autoscaler is told, also when a call has it.
func TestPodsOfAPoolAreFoundByItsSelector(t *testing.T) {
	t.Parallel()
	env := &v1alpha1.ExecutionEnvironment{}
	env.UID = "e-1"
	selector, err := labels.Parse(jobspec.PoolSelector(env))
	if err != nil {
		t.Fatal(err)
	}
	pod := jobspec.BuildWarm(jobspec.WarmInput{Environment: env, Name: "w"}, "hash", sealer(t)).Spec.Template
	if !selector.Matches(labels.Set(pod.Labels)) || selector.Matches(labels.Set(build(t).Spec.Template.Labels)) {
		t.Errorf("the selector is %s", selector)
	}
}

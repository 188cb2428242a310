package jobspec_test

import (
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

func TestTheEnvironmentSaysWhichQueuesItsCallsMayChoose(t *testing.T) {
	t.Parallel()
	own := map[string]string{jobspec.LabelQueue: "own", jobspec.LabelQueuePriority: "low", "team": "x"}
	wants := func(queue string) map[string]string {
		return map[string]string{jobspec.LabelQueue: queue, jobspec.LabelQueuePriority: "high", "team": "y"}
	}
	type labels struct{ Queue, Priority string }
	for name, tc := range map[string]struct {
		env, call map[string]string
		offers    string
		want      labels
	}{
		"no labels":                         {},
		"the environment's":                 {env: own, want: labels{"own", "low"}},
		"the environment's beside an offer": {env: own, offers: "other", want: labels{"own", "low"}},
		"a call's, not offered":             {call: wants("other")},
		"a call's, another one offered":     {env: own, offers: "others,an", call: wants("other"), want: labels{"own", "low"}},
		"a call's, offered":                 {env: own, offers: "first, other ,", call: wants("other"), want: labels{"other", "low"}},
		"the only offer":                    {offers: "other", call: wants("other"), want: labels{Queue: "other"}},
		"the environment's by the call":     {env: own, call: wants("own"), want: labels{"own", "low"}},
		"an empty one":                      {env: own, offers: ", ,", call: wants(""), want: labels{"own", "low"}},
	} {
		job := build(t, func(in *jobspec.Input) {
			in.Decision.In.Labels, in.Call.Labels = tc.env, tc.call
			in.Decision.In.Annotations = map[string]string{v1alpha1.AnnotationQueues: tc.offers}
		})
		got := labels{job.Labels[jobspec.LabelQueue], job.Labels[jobspec.LabelQueuePriority]}
		if got != tc.want || job.Labels["team"] != "" || job.Spec.Template.Labels[jobspec.LabelQueue] != "" {
			t.Errorf("%s: got %+v of %v, want %+v", name, got, job.Labels, tc.want)
		}
	}
}

func TestAPodThatWaitsIsOfItsEnvironmentsQueue(t *testing.T) {
	t.Parallel()
	hash := func(labels map[string]string) string {
		env := &v1alpha1.ExecutionEnvironment{}
		env.Labels = labels
		sum, err := jobspec.TemplateHash(jobspec.WarmInput{Environment: env})
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	plain := hash(nil)
	if hash(map[string]string{"team": "x"}) != plain {
		t.Error("a label that means nothing replaces waiting pods")
	}
	one, two := hash(map[string]string{jobspec.LabelQueue: "1"}), hash(map[string]string{jobspec.LabelQueue: "2"})
	if one == plain || one == two {
		t.Error("another queue doesn't replace waiting pods")
	}
}

package jobspec_test

import (
	"maps"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

func TestOnlyTheEnvironmentsLabelsPutAJobIntoAQueue(t *testing.T) {
	t.Parallel()
	labels := map[string]string{jobspec.LabelQueue: "q", jobspec.LabelQueuePriority: "p", "team": "x"}
	of := func(env, call map[string]string) map[string]string {
		got := build(t, func(in *jobspec.Input) { in.Environment.Labels, in.Call.Labels = env, call }).Labels
		maps.DeleteFunc(got, func(name, _ string) bool { return labels[name] == "" })
		return got
	}
	if got := of(labels, nil); len(got) != 2 || got[jobspec.LabelQueue] != "q" || got[jobspec.LabelQueuePriority] != "p" {
		t.Errorf("labelled environment: the Job has %v", got)
	}
	if got := of(nil, labels); len(got) != 0 {
		t.Errorf("labelled call: the Job has %v", got)
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

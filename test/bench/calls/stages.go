package calls

import (
	"cmp"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/figures"
)

// Stages of a call. Those that are "seen" are seen by this process on a watch, which is a little later than they
// were written.
const (
	stageReturned  = "the create request has returned"
	stageJob       = "its Job is seen"
	stagePod       = "its pod is seen"
	stageScheduled = "the pod has a node, seen"
	stageAccepted  = "Accepted is seen"
	stageRunner    = "its runner is at the operator"
	stageStarted   = "Started is seen"
	stageProcess   = "the process starts"
	stageEnded     = "the process has ended"
	stageFinished  = "Finished is seen"
)

// stagesOf says which stages an object shows. Jobs and pods count where they are a cold call's.
func stagesOf(o client.Object) []string {
	switch o := o.(type) {
	case *batchv1.Job:
		return []string{stageJob}
	case *corev1.Pod:
		if o.Spec.NodeName != "" {
			return []string{stagePod, stageScheduled}
		}
		return []string{stagePod}
	case *v1alpha1.ToolCall:
		return conditionStages(o)
	}
	return nil
}

func conditionStages(c *v1alpha1.ToolCall) []string {
	var stages []string
	for condition, stage := range map[string]string{
		v1alpha1.ConditionAccepted: stageAccepted,
		v1alpha1.ConditionStarted:  stageStarted,
		v1alpha1.ConditionFinished: stageFinished,
	} {
		if meta.IsStatusConditionTrue(c.Status.Conditions, condition) {
			stages = append(stages, stage)
		}
	}
	return stages
}

// marks are when each stage was seen first.
type marks struct {
	mu sync.Mutex
	at map[string]time.Time
}

// see notes the stages that an object shows.
func (m *marks) see(o client.Object, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == nil {
		m.at = map[string]time.Time{}
	}
	for _, stage := range stagesOf(o) {
		if _, seen := m.at[stage]; !seen {
			m.at[stage] = now
		}
	}
}

// offsets are the seconds from just before the create request until each stage. The operator counts from when it
// first saw the call, in whole milliseconds: that is taken for when the create request returned.
func (m *marks) offsets(s *cluster.Sample) map[string]float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	seconds := map[string]float64{}
	since := func(stage string, at time.Time) { seconds[stage] = at.Sub(s.Created).Seconds() }
	for stage, at := range m.at {
		since(stage, at)
	}
	since(stageReturned, s.Returned)
	status := s.Object.(*v1alpha1.ToolCall).Status
	if at := status.StartTime; at != nil {
		since(stageProcess, at.Time)
	}
	if at := status.CompletionTime; at != nil {
		since(stageEnded, at.Time)
	}
	if t := status.Timings; t != nil && t.StartedMilliseconds != nil {
		since(stageRunner, s.Returned.Add(time.Duration(*t.StartedMilliseconds)*time.Millisecond))
	}
	return seconds
}

// stage is one line of a breakdown.
type stage struct {
	Name string `json:"name"`
	// At is the time since the create request.
	At figures.Summary `json:"at"`
	// Step is by how much the median is later than that of the line before.
	Step float64 `json:"step"`
}

// breakdown lines the stages of one kind up by their medians, so that the steps add up to the whole.
func breakdown(samples []sample, kind string) []stage {
	values := map[string][]float64{}
	for _, s := range samples {
		if s.Kind != kind {
			continue
		}
		for name, at := range s.Stages {
			values[name] = append(values[name], at)
		}
	}
	var stages []stage
	for name, at := range values {
		stages = append(stages, stage{Name: name, At: figures.Summarize(at)})
	}
	slices.SortFunc(stages, func(a, b stage) int {
		return cmp.Or(cmp.Compare(a.At.P50, b.At.P50), cmp.Compare(a.Name, b.Name))
	})
	before := 0.0
	for i := range stages {
		stages[i].Step = stages[i].At.P50 - before
		before = stages[i].At.P50
	}
	return stages
}

package toolsession

import (
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/testing/stages"
)

// start is when the sessions of these tests were created.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// sight is all that a session's stage depends on.
type sight struct {
	deleting, end, old, suspend, workspace, idle, waiting, bound, connected, job, held bool
	phase                                                                              v1alpha1.SessionPhase
}

// observation is the one in which a pass sees that.
func (s sight) observation() *observation {
	o := &observation{
		session: &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", UID: "uid", CreationTimestamp: metav1.NewTime(start)}},
		now:     start.Add(time.Second), created: start, heard: start.Add(-time.Hour),
	}
	status := &o.session.Status
	status.Phase = s.phase
	if s.deleting {
		o.session.DeletionTimestamp = ptr.To(metav1.NewTime(start))
	}
	if s.old {
		o.now = start.Add(9 * time.Hour)
	}
	if s.workspace {
		o.session.Spec.Workspace = &v1alpha1.SessionWorkspace{}
	}
	o.session.Spec.End, o.session.Spec.Suspend = s.end, s.suspend
	if s.idle {
		status.Reason = v1alpha1.ReasonIdleTimeout
	}
	if s.waiting {
		o.calls = calls{total: 1, waiting: 1}
	}
	if s.bound {
		status.Runner, status.Pod, status.Job = &v1alpha1.RunnerBinding{}, "pod", "job"
	}
	if s.connected {
		o.runner = &dispatch.Runner{}
	}
	if s.job {
		o.job = &batchv1.Job{}
		o.job.Spec.Suspend = ptr.To(s.held)
	}
	return o
}

// isPossible says that observe can see that.
func (s sight) isPossible() bool {
	switch {
	case s.connected && !s.bound && !s.job, s.held && !s.job:
		return false
	case s.idle != (s.phase == v1alpha1.SessionSuspended && s.idle), s.phase == v1alpha1.SessionSuspended && !s.workspace:
		return false
	default:
		return true
	}
}

func allSights() []sight {
	var all []sight
	for bits := range 1 << 11 {
		has := func(i int) bool { return bits>>i&1 == 1 }
		for _, phase := range []v1alpha1.SessionPhase{"", v1alpha1.SessionPending, v1alpha1.SessionReady, v1alpha1.SessionSuspended, v1alpha1.SessionEnded} {
			all = append(all, sight{
				deleting: has(0), end: has(1), old: has(2), suspend: has(3), workspace: has(4), idle: has(5), waiting: has(6),
				bound: has(7), connected: has(8), job: has(9), held: has(10), phase: phase,
			})
		}
	}
	return all
}

// What must never happen, over all that can be seen at once.
func TestStagesKeepTheirPromisesInEveryCombination(t *testing.T) {
	t.Parallel()
	reached := map[Stage]bool{}
	begins := []Stage{New, Placed, Starting}
	for _, s := range allSights() {
		if !s.isPossible() {
			continue
		}
		stage := stageOf(s.observation())
		reached[stage] = true
		over := s.deleting || s.end || s.old
		for promise, kept := range map[string]bool{
			"an ended session stays so":                          (s.phase == v1alpha1.SessionEnded) == (stage == Ended),
			"one that must end, ends":                            !over || stage == Ended || stage == Ending,
			"one that need not end doesn't":                      over || stage != Ending,
			"no other process begins while one is recorded":      !s.bound || !slices.Contains(begins, stage),
			"a suspended session has its process end first":      s.phase != v1alpha1.SessionSuspended || !s.bound || over || stage == Stopping,
			"a suspended session doesn't begin":                  !s.suspend || !s.workspace || !slices.Contains(begins, stage) && stage != Ready && stage != Unheard,
			"an idle session doesn't begin without a call":       !s.idle || s.waiting || !slices.Contains(begins, stage),
			"a session that rests has no Job":                    stage != Suspended || !s.job && !s.bound,
			"nobody is recorded while a queue holds the Job":     stage != Starting || !s.held,
			"only a recorded and connected process is the ready": stage != Ready || s.bound && s.connected,
		} {
			if !kept {
				t.Errorf("%+v is %s: %s", s, stage, promise)
			}
		}
	}
	var documented []Stage
	for _, row := range stages.Read(t, "../../docs/sessions.md") {
		documented = append(documented, Stage(row.Stage))
		for _, next := range row.Next {
			if !reached[Stage(next)] || next == row.Stage {
				t.Errorf("%s is said to lead to %s", row.Stage, next)
			}
		}
	}
	if want := []Stage{Ended, Ending, Stopping, Suspended, Suspending, Ready, Unheard, Starting, Placed, New}; !slices.Equal(documented, want) || len(reached) != len(want) {
		t.Errorf("documented are %v, in this order, want %v; reached are %v", documented, want, reached)
	}
}

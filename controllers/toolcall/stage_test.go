package toolcall

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/toolsession"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/testing/stages"
)

// sight is all that a call's stage depends on.
type sight struct {
	deleting, terminal, cancel, edited, bound, result, queued bool
	// awaiting says that people are asked about the call.
	awaiting bool
	runner   runnerSight
	job      jobSight
	// inSession is for a session's call: bound says that it was handed over, queued that its status says what it waits for.
	inSession bool
}

type runnerSight int

const (
	noRunner runnerSight = iota
	idleRunner
	busyRunner
)

type jobSight int

const (
	noJob jobSight = iota
	suspendedJob
	runningJob
)

// sessions are runners without a call, and with one.
type sessions struct{ idle, busy *dispatch.Runner }

func newSessions(t *testing.T) sessions {
	t.Helper()
	o := startOperator(t)
	idle, _ := o.connect(t, "idle", "")
	busy, _ := o.connect(t, "busy", "call-uid")
	return sessions{idle, busy}
}

// observation is the one in which a pass sees that.
func (s sight) observation(with sessions) *observation {
	o := observed()
	switch {
	case s.inSession:
		o.session = &inSession{Serving: &toolsession.Serving{Session: &v1alpha1.ToolSession{}, Wait: v1alpha1.ReasonSessionStarting}, handedOver: s.bound, isInLine: !s.bound}
		if s.queued {
			o.call.Status = *o.pending(v1alpha1.ReasonSessionStarting, "")
		}
	case s.bound:
		bound(o)
	}
	switch s.job {
	case suspendedJob:
		suspended(o)
	case runningJob:
		withJob(o)
	}
	o.queued = s.queued
	if s.awaiting {
		o.call.Status = *o.awaiting(&v1alpha1.ApprovalStatus{Needed: 1})
	}
	if s.deleting {
		o.call.DeletionTimestamp = ptr.To(metav1.Now())
	}
	if s.terminal {
		o.call.Status.Phase = v1alpha1.PhaseFailed
	}
	o.call.Spec.Cancel = s.cancel
	if s.edited {
		o.call.Generation = 2
	}
	if s.result {
		o.result = outcome()
	}
	o.runner = map[runnerSight]*dispatch.Runner{idleRunner: with.idle, busyRunner: with.busy}[s.runner]
	return o
}

// isPossible says that observe can see that: a result only of a recorded runner, of an ended call neither Job nor place,
// no wait for a place of a call that has one, and a runner that isn't recorded only as that of the call's own Job.
func (s sight) isPossible() bool {
	if s.awaiting && (s.terminal || s.bound || s.queued || s.job != noJob) {
		return false
	}
	if s.inSession {
		return s.job == noJob && s.runner == noRunner && (s.bound || !s.result)
	}
	switch {
	case s.result && !s.bound, s.terminal && (s.job != noJob || s.queued), s.queued && (s.bound || s.job != noJob):
		return false
	case s.runner != noRunner && !s.bound && (s.job == noJob || s.terminal):
		return false
	default:
		return true
	}
}

func allSights() []sight {
	var all []sight
	for bits := range 1 << 9 {
		has := func(i int) bool { return bits>>i&1 == 1 }
		for _, runner := range []runnerSight{noRunner, idleRunner, busyRunner} {
			for _, job := range []jobSight{noJob, suspendedJob, runningJob} {
				all = append(all, sight{
					deleting: has(0), terminal: has(1), cancel: has(2), edited: has(3), bound: has(4), result: has(5), queued: has(6),
					inSession: has(7), awaiting: has(8), runner: runner, job: job,
				})
			}
		}
	}
	return all
}

func TestEachObservationHasItsStage(t *testing.T) {
	t.Parallel()
	with := newSessions(t)
	for name, tc := range map[string]struct {
		sight sight
		want  Stage
	}{
		"a new call":                                     {sight{}, New},
		"a new call that is cancelled":                   {sight{cancel: true}, Cancelling},
		"a new call that was edited":                     {sight{edited: true}, Cancelling},
		"a call that waits for a place":                  {sight{queued: true}, Queued},
		"one that waits, and is cancelled":               {sight{queued: true, cancel: true}, Cancelling},
		"one whose place is free, with a Job already":    {sight{queued: true, job: runningJob}, Placed},
		"a call that people are asked about":             {sight{awaiting: true}, AwaitingApproval},
		"one that is cancelled meanwhile":                {sight{awaiting: true, cancel: true}, Cancelling},
		"one of a session that people are asked about":   {sight{awaiting: true, inSession: true}, AwaitingApproval},
		"a call with its Job":                            {sight{job: runningJob}, Placed},
		"a call whose Job a queue holds back":            {sight{job: suspendedJob}, Placed},
		"one held back, with a runner from before":       {sight{job: suspendedJob, runner: idleRunner}, Placed},
		"a call whose runner has come":                   {sight{job: runningJob, runner: idleRunner}, Starting},
		"a cancelled call whose runner has come":         {sight{job: runningJob, runner: idleRunner, cancel: true}, Cancelling},
		"a runner that says it has the call, unrecorded": {sight{job: runningJob, runner: busyRunner}, Starting},
		"a recorded runner that has the call":            {sight{bound: true, job: runningJob, runner: busyRunner}, Running},
		"a cancelled call whose runner has it":           {sight{bound: true, job: runningJob, runner: busyRunner, cancel: true}, Running},
		"an edited call whose runner has it":             {sight{bound: true, job: runningJob, runner: busyRunner, edited: true}, Running},
		"a recorded runner that isn't connected":         {sight{bound: true, job: runningJob}, Running},
		"a cancelled call that may have started":         {sight{bound: true, cancel: true}, Running},
		"a recorded runner without the call":             {sight{bound: true, runner: idleRunner}, Bound},
		"a cancelled call that certainly has not":        {sight{bound: true, runner: idleRunner, cancel: true}, Cancelling},
		"an edited call that certainly has not":          {sight{bound: true, runner: idleRunner, edited: true}, Cancelling},
		"a result":                                       {sight{bound: true, runner: busyRunner, result: true}, Reported},
		"a result of a runner that went":                 {sight{bound: true, result: true}, Reported},
		"a result, and a cancel that came too late":      {sight{bound: true, result: true, cancel: true}, Reported},
		"a result of a runner that came back empty":      {sight{bound: true, result: true, runner: idleRunner, cancel: true}, Reported},
		"a call that ended":                              {sight{terminal: true}, Finished},
		"a call that ended, with a result again":         {sight{terminal: true, bound: true, result: true, runner: busyRunner}, Finished},
		"a call that ended, and is cancelled then":       {sight{terminal: true, cancel: true}, Finished},
		"a new call of a session":                        {sight{inSession: true}, Eligible},
		"one that says what it waits for":                {sight{inSession: true, queued: true}, Waiting},
		"one that waits, in a session, and is edited":    {sight{inSession: true, queued: true, edited: true}, Cancelling},
		"one that was handed over":                       {sight{inSession: true, bound: true}, HandedOver},
		"one that was handed over after it had waited":   {sight{inSession: true, bound: true, queued: true}, HandedOver},
		"one that was handed over and is cancelled":      {sight{inSession: true, bound: true, cancel: true}, HandedOver},
		"one that was handed over and is being deleted":  {sight{inSession: true, bound: true, deleting: true}, Deleting},
		"one that waits and is being deleted":            {sight{inSession: true, queued: true, deleting: true}, Deleting},
		"a result of a session's call, being deleted":    {sight{inSession: true, bound: true, result: true, deleting: true}, Deleting},
		"a call that is being deleted":                   {sight{deleting: true, bound: true, result: true, runner: busyRunner}, Deleting},
		"a call that ended and is being deleted":         {sight{deleting: true, terminal: true}, Deleting},
	} {
		if got := stageOf(tc.sight.observation(with)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// A call that has left its line, because its end couldn't be written yet, waits for nothing: nobody would wake it.
func TestACallThatLeftItsLineDoesNotWait(t *testing.T) {
	t.Parallel()
	s := sight{inSession: true, queued: true}
	o := s.observation(sessions{})
	if got := stageOf(o); got != Waiting {
		t.Errorf("in its line: %s", got)
	}
	o.session.isExcluded = true
	if got := stageOf(o); got != Eligible {
		t.Errorf("out of it: %s", got)
	}
}

// What must never happen, over all that can be seen at once.
func TestStagesKeepTheirPromisesInEveryCombination(t *testing.T) {
	t.Parallel()
	with := newSessions(t)
	reached := map[Stage]bool{stageOf(&observation{}): true}
	for _, s := range allSights() {
		if !s.isPossible() {
			continue
		}
		stage := stageOf(s.observation(with))
		reached[stage] = true
		live := !s.deleting && !s.terminal
		for promise, kept := range map[string]bool{
			"a call that is deleted or has ended gets nothing else": live || stage == Deleting || stage == Finished,
			"a call that lives isn't taken for ended":               !live || stage != Deleting && stage != Finished,
			"nothing is decided or placed twice":                    !s.bound || !slices.Contains([]Stage{New, Queued, Placed, Starting, Waiting, Eligible, AwaitingApproval}, stage),
			"a call that people are asked about isn't placed":       !live || !s.awaiting || stage == AwaitingApproval || stage == Cancelling,
			"calls of sessions get no pod of their own":             !s.inSession || !slices.Contains([]Stage{New, Queued, Placed, Starting, Bound, Running}, stage),
			"no runner is recorded while a queue holds the Job":     stage != Starting || s.job == runningJob,
			"a result is never ignored":                             !live || !s.result || stage == Reported,
			"a cancelled call doesn't start":                        !live || !s.cancel || !slices.Contains([]Stage{New, Queued, Placed, Starting, Bound, Waiting, Eligible}, stage),
			"an edited call doesn't start":                          !live || !s.edited || !slices.Contains([]Stage{New, Queued, Placed, Starting, Bound}, stage),
			"a command is handed to an idle runner only":            stage != Bound || s.runner == idleRunner && s.bound,
			"what may have started isn't called cancelled at once":  stage != Cancelling || !s.bound || s.runner == idleRunner && !s.inSession,
		} {
			if !kept {
				t.Errorf("%+v is %s: broken is that %s", s, stage, promise)
			}
		}
	}
	for _, stage := range stageConstants(t) {
		if !reached[stage] {
			t.Errorf("nothing that can be seen is %s", stage)
		}
	}
}

// page has the table of stages.
const page = "../../docs/concepts.md"

func TestThePageHasARowForEachStage(t *testing.T) {
	t.Parallel()
	var documented []Stage
	constants := stageConstants(t)
	for _, row := range stages.Read(t, page) {
		documented = append(documented, Stage(row.Stage))
		for _, next := range row.Next {
			if !slices.Contains(constants, Stage(next)) || next == row.Stage {
				t.Errorf("%s is said to lead to %s", row.Stage, next)
			}
		}
	}
	if !slices.Equal(documented, constants) {
		t.Errorf("documented are %v, in this order, want %v", documented, constants)
	}
}

// stageConstants reads the stages from the source.
func stageConstants(t *testing.T) []Stage {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "stage.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var stages []Stage
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Stage" {
			stages = append(stages, Stage(strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)))
		}
		return true
	})
	if len(stages) == 0 {
		t.Fatal("stage.go declares no stage")
	}
	return stages
}

// outside are the sights of the next pass when one thing has happened that no handler did.
func (s sight) outside() []sight {
	if s.inSession {
		return []sight{
			s.with(func(s *sight) { s.cancel = true }),
			s.with(func(s *sight) { s.edited = true }),
			s.with(func(s *sight) { s.queued = false }),
			s.with(func(s *sight) { s.bound, s.result = !s.bound, false }),
			s.with(func(s *sight) { s.result = s.bound }),
		}
	}
	next := []sight{
		s.with(func(s *sight) { s.cancel = true }),
		s.with(func(s *sight) { s.edited = true }),
		s.with(func(s *sight) { s.runner = noRunner }),
		s.with(func(s *sight) { s.runner = busyRunner }),
		s.with(func(s *sight) { s.queued = false }),
		s.with(func(s *sight) { s.job, s.runner = noJob, noRunner }),
	}
	if s.runner == noRunner {
		// A process that has its call keeps it.
		next = append(next, s.with(func(s *sight) { s.runner = idleRunner }))
	}
	if s.runner == busyRunner {
		next = append(next, s.with(func(s *sight) { s.result = true }))
	}
	if s.job != noJob {
		next = append(next, s.with(func(s *sight) { s.job = suspendedJob }), s.with(func(s *sight) { s.job = runningJob }))
	}
	return next
}

func (s sight) with(change func(*sight)) sight {
	change(&s)
	return s
}

// handled are the sights after the handler of a stage has done what it does.
func (s sight) handled(stage Stage) []sight {
	given := s.with(func(s *sight) { s.bound, s.runner = true, busyRunner })
	// The connection broke, or the operator ended, before the command was handed over.
	recorded := s.with(func(s *sight) { s.bound, s.runner = true, idleRunner })
	ended := s.with(func(s *sight) { s.terminal, s.job, s.queued, s.runner = true, noJob, false, noRunner })
	asked := s.with(func(s *sight) { s.queued, s.awaiting = false, true })
	ended.awaiting = false
	if stage == AwaitingApproval {
		approved := s.with(func(s *sight) { s.awaiting = false })
		if s.inSession {
			return append(approved.handled(Eligible), approved, ended)
		}
		// A Job is made after the status says that the call is approved.
		withoutJob := slices.DeleteFunc(approved.handled(New), func(s sight) bool { return s.job != noJob && !s.bound })
		return append(withoutJob, approved, ended)
	}
	if s.inSession {
		handedOver := s.with(func(s *sight) { s.bound = true })
		waits := s.with(func(s *sight) { s.bound, s.result, s.queued = false, false, true })
		ended.bound = s.bound
		switch stage {
		case Eligible:
			return []sight{asked, handedOver, handedOver.with(func(s *sight) { s.result = true }), waits, ended}
		case Reported:
			return []sight{waits, ended}
		case HandedOver, Cancelling:
			return []sight{ended}
		default:
			return nil
		}
	}
	switch stage {
	case New:
		given.job, recorded.job = runningJob, runningJob
		return []sight{
			given, recorded, ended, asked,
			s.with(func(s *sight) { s.queued = true }),
			s.with(func(s *sight) { s.job = runningJob }),
			s.with(func(s *sight) { s.job = suspendedJob }),
		}
	case Starting:
		return []sight{given, recorded, ended}
	case Bound:
		return []sight{given, ended}
	case Reported:
		// One that isn't valid is refused, and its runner with it.
		return []sight{ended, s.with(func(s *sight) { s.result, s.runner = false, noRunner })}
	case Cancelling, Running, Placed:
		return []sight{ended}
	default:
		return nil
	}
}

// next are the sights of the next pass: what happened outside, or what the handler did and then the runner.
func (s sight) next(stage Stage) []sight {
	next := s.outside()
	for _, after := range s.handled(stage) {
		next = append(next, after)
		if after.job == runningJob && !after.bound {
			next = append(next, after.with(func(s *sight) { s.runner = idleRunner }))
		}
		if after.bound && after.runner == busyRunner {
			next = append(next, after.with(func(s *sight) { s.result = true }))
		}
	}
	return slices.DeleteFunc(next, func(after sight) bool { return !after.isPossible() })
}

// The table says where a call goes from each stage: nowhere else, and there indeed.
func TestCallsGoFromStageToStageAsTheTableSays(t *testing.T) {
	t.Parallel()
	with := newSessions(t)
	may := map[string]bool{}
	for _, row := range stages.Read(t, page) {
		for _, next := range row.Next {
			may[fmt.Sprint(row.Stage, " to ", next)] = true
		}
	}
	goes := map[string]bool{}
	for _, s := range allSights() {
		if !s.isPossible() || s.deleting {
			continue
		}
		from := stageOf(s.observation(with))
		for _, after := range s.next(from) {
			if to := stageOf(after.observation(with)); to != from {
				goes[fmt.Sprint(from, " to ", to)] = true
			}
		}
	}
	for step := range goes {
		if !may[step] {
			t.Errorf("the table doesn't say that a call may go from %s", step)
		}
	}
	for step := range may {
		if !goes[step] {
			t.Errorf("the table says that a call may go from %s, and nothing leads there", step)
		}
	}
}

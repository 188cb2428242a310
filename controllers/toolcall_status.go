package controllers

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/result"
)

// accepted says that the guards passed and that the call waits for its process.
func (s *scope) accepted() {
	status := &s.call.Status
	if status.Job != "" {
		return
	}
	s.allowed()
	status.Job = s.job.Name
	status.Timings.Path = s.path()
	s.condition(v1alpha1.ConditionStarted, false, v1alpha1.ReasonNotStarted, "the pod has not started")
}

// queued says that the guards passed and that the environment has no room yet.
func (s *scope) queued(limit int) {
	s.allowed()
	s.condition(v1alpha1.ConditionStarted, false, v1alpha1.ReasonQueued, fmt.Sprintf("the environment runs at most %d calls at the same time (maxConcurrentCalls): the call waits for its turn", limit))
}

// allowed says that the guards passed.
func (s *scope) allowed() {
	status := &s.call.Status
	status.Phase = v1alpha1.PhasePending
	if action, unmapped := guards.Map(&s.call.Spec); unmapped == nil {
		s.mapped(action)
	}
	status.Environment = &v1alpha1.ResolvedEnvironment{Name: s.record.Environment, Trusted: s.record.Plan.Trusted}
	status.Timings = &v1alpha1.CallTimings{AcceptedMilliseconds: ptr.To(s.record.AcceptedMillis)}
	when := time.UnixMicro(s.record.SeenMicroseconds).Add(time.Duration(s.record.AcceptedMillis) * time.Millisecond)
	s.setCondition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonGuardsPassed, s.mayRun(), when)
	s.inProgress()
}

// inProgress says that the call has not ended, and so neither succeeded nor failed.
func (s *scope) inProgress() {
	s.condition(v1alpha1.ConditionFinished, false, v1alpha1.ReasonInProgress, "the call has not ended")
	s.setCondition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonInProgress, "the call has not ended", s.now)
}

// mayRun is the message of an accepted call.
func (s *scope) mayRun() string {
	if wanted := s.call.Labels[jobspec.LabelQueue]; s.job != nil && wanted != s.job.Labels[jobspec.LabelQueue] && wanted != "" {
		return fmt.Sprintf("the call may run, but its label %s means nothing: queue %q isn't in the environment's queues",
			jobspec.LabelQueue, wanted)
	}
	return "the call may run"
}

// mapped says what a call comes to.
func (s *scope) mapped(action *guards.Action) {
	s.call.Status.Action = &v1alpha1.MappedAction{Type: action.Type, Tool: bounds.Text(action.Tool(), v1alpha1.MaxToolBytes), Summary: action.Summary()}
}

// path says how the call comes to its pod.
func (s *scope) path() v1alpha1.Path {
	if s.session != nil && s.session.Hello().Pool != "" {
		return v1alpha1.PathWarm
	}
	return v1alpha1.PathCold
}

// started says which runner has the call. What is recorded here never changes.
func (s *scope) started() {
	s.accepted()
	hello := s.session.Hello()
	status := &s.call.Status
	status.Phase = v1alpha1.PhaseRunning
	status.Pod = hello.Pod
	status.Node = hello.Node
	status.Runner = &v1alpha1.RunnerBinding{PodUID: hello.PodUID, KeyHash: s.session.KeyHash()}
	status.Timings.StartedMilliseconds = s.millis()
	s.condition(v1alpha1.ConditionStarted, true, v1alpha1.ReasonAssigned, "the call was given to its pod")
}

// fail ends a call that did not run to its own end.
func (s *scope) fail(reason, message string) { s.end(v1alpha1.PhaseFailed, reason, message) }

// rejected ends a call that nothing was made for.
func (s *scope) rejected(e *rejection) {
	phase := v1alpha1.PhaseFailed
	if e.Denied {
		phase = v1alpha1.PhaseDenied
	}
	s.end(phase, e.Reason, e.Message)
}

// end writes the terminal phase, and all that follows from it alone.
func (s *scope) end(phase v1alpha1.Phase, reason, message string) {
	message = bounds.Text(upperFirst(message), v1alpha1.MaxMessageBytes)
	if s.record != nil && s.job != nil {
		s.accepted()
	}
	status := &s.call.Status
	accepted := s.record != nil || s.bound()
	status.Phase, status.Reason, status.Message = phase, reason, message
	// Of a command that ran there is more to tell: finish does.
	status.Output = message
	if status.Timings == nil {
		status.Timings = &v1alpha1.CallTimings{}
	}
	status.Timings.FinishedMilliseconds = s.millis()
	if phase == v1alpha1.PhaseFailed || phase == v1alpha1.PhaseCancelled {
		status.RetrySafe = ptr.To(!s.bound())
	}
	if accepted {
		s.condition(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonGuardsPassed, "the call may run")
	} else {
		s.condition(v1alpha1.ConditionAccepted, false, reason, message)
	}
	if !s.bound() {
		s.condition(v1alpha1.ConditionStarted, false, v1alpha1.ReasonNotStarted, "no command was started")
	}
	s.condition(v1alpha1.ConditionFinished, true, reason, message)
	s.condition(v1alpha1.ConditionSucceeded, phase == v1alpha1.PhaseSucceeded, reason, message)
}

// condition sets one condition, which became so now if it was otherwise before.
func (s *scope) condition(kind string, is bool, reason, message string) {
	s.setCondition(kind, truth(is), reason, message, s.now)
}

func truth(is bool) metav1.ConditionStatus {
	if is {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

func (s *scope) setCondition(kind string, value metav1.ConditionStatus, reason, message string, since time.Time) {
	meta.SetStatusCondition(&s.call.Status.Conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: bounds.Text(message, v1alpha1.MaxMessageBytes),
		ObservedGeneration: s.call.Generation, LastTransitionTime: metav1.NewTime(since),
	})
}

// finish writes what the runner reports.
func (s *scope) finish(reported *wire.Result) {
	o := &reported.Outcome
	s.end(phaseOf(o.Reason), o.Reason, messageOf(o))
	status := &s.call.Status
	status.ExitCode, status.Signal = o.ExitCode, o.Signal
	if !o.Started {
		status.RetrySafe = ptr.To(true)
	} else {
		status.DurationMilliseconds = ptr.To(o.DurationMS)
		status.StartTime = ptr.To(metav1.NewMicroTime(o.StartTime))
		status.CompletionTime = ptr.To(metav1.NewMicroTime(o.CompletionTime))
	}
	s.resolved(&reported.Environment)
	s.fitOutput(o)
}

func phaseOf(reason string) v1alpha1.Phase {
	switch reason {
	case result.Completed:
		return v1alpha1.PhaseSucceeded
	case result.CancelRequested:
		return v1alpha1.PhaseCancelled
	default:
		return v1alpha1.PhaseFailed
	}
}

func messageOf(o *result.Outcome) string {
	if o.Message == "" && o.Reason == result.Completed {
		return "the command exited with code 0"
	}
	return o.Message
}

// resolved writes what the runner found the environment to be: names and sources.
func (s *scope) resolved(env *wire.Environment) {
	if s.call.Status.Environment == nil {
		s.call.Status.Environment = &v1alpha1.ResolvedEnvironment{}
	}
	into := s.call.Status.Environment
	into.WorkingDir = bounds.PathEnd(env.WorkingDir, v1alpha1.MaxPathBytes)
	into.StrippedEnv, into.OmittedStrippedEnv = bounds.Names(env.Stripped)
	variables := make([]v1alpha1.ResolvedEnvVar, len(env.Vars))
	for i, v := range env.Vars {
		variables[i] = v1alpha1.ResolvedEnvVar{Name: v.Name, Source: v1alpha1.EnvSource(v.Source)}
	}
	into.Env, into.OmittedEnv = bounds.Variables(variables)
}

// maxObjectBytes is what a whole ToolCall may take, encoded. etcd takes 1.5 MiB in one request, the object
// and what is around it.
const maxObjectBytes = 1400 << 10

// fitOutput writes both streams and the text for a model. What the policy lets through can still be more than
// an object can hold (the same bytes stand in stdout and in output, and escaping makes them longer): then
// less of each stream is kept, and truncated says so.
func (s *scope) fitOutput(o *result.Outcome) {
	if !o.Started {
		s.call.Status.Output = s.call.Status.Message
		return
	}
	// A byte that isn't UTF-8 becomes three in the text.
	for limit := 3 * max(kept(&o.Stdout), kept(&o.Stderr)); ; limit = limit * 2 / 3 {
		s.writeOutput(o, limit)
		if limit == 0 || encodedSize(s.call) <= maxObjectBytes {
			return
		}
	}
}

func kept(stream *result.Stream) int { return len(stream.Head) + len(stream.Tail) }

func (s *scope) writeOutput(o *result.Outcome, limit int) {
	status := &s.call.Status
	stdout, cutOut := o.Stdout.Text(limit)
	stderr, cutErr := o.Stderr.Text(limit)
	status.Stdout, status.Stderr = stdout, stderr
	status.Streams = &v1alpha1.StreamsStatus{
		Stdout: v1alpha1.StreamStatus{Bytes: o.Stdout.Bytes, SHA256: o.Stdout.SHA256, Truncated: cutOut, InvalidUTF8: o.Stdout.InvalidUTF8},
		Stderr: v1alpha1.StreamStatus{Bytes: o.Stderr.Bytes, SHA256: o.Stderr.SHA256, Truncated: cutErr, InvalidUTF8: o.Stderr.InvalidUTF8},
	}
	status.Output = result.Output(stdout, stderr, o.ExitCode, time.Duration(o.DurationMS)*time.Millisecond)
}

func encodedSize(call *v1alpha1.ToolCall) int {
	raw, err := json.Marshal(call)
	if err != nil {
		return maxObjectBytes + 1
	}
	return len(raw)
}

func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + " …"
}

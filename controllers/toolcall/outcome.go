package toolcall

import (
	"encoding/json"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/output"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/result"
)

// withResult is the status of a call that ended as its runner reports. specBytes is what the rest of the object takes.
func (o *observation) withResult(reported *wire.Result, specBytes int) *v1alpha1.ToolCallStatus {
	outcome := &reported.Outcome
	s := o.end(phaseOf(outcome.Reason), outcome.Reason, messageOf(outcome)+prefixNote(o, outcome))
	s.ExitCode, s.Signal = outcome.ExitCode, outcome.Signal
	if !outcome.Started {
		s.RetrySafe = ptr.To(true)
	} else {
		s.DurationMilliseconds = ptr.To(outcome.DurationMS)
		s.StartTime = ptr.To(metav1.NewMicroTime(outcome.StartTime))
		s.CompletionTime = ptr.To(metav1.NewMicroTime(outcome.CompletionTime))
	}
	s.Usage = (*v1alpha1.CallUsage)(outcome.Usage)
	setEnvironment(s, &reported.Environment)
	setPrograms(s, outcome)
	setNetwork(s, o.decision, outcome)
	s.File = fileStatus(outcome.File)
	setArtifacts(s, outcome.Artifacts)
	if i := outcome.Isolation; i != nil {
		setPod(s.Isolation, o.decision, i.Self)
	}
	setOutput(s, o.call, outcome, specBytes)
	if note := guards.ToolNote(o.call.Spec.Tool); note != "" && outcome.Reason == result.NonZeroExit {
		s.Message = bounds.Text(s.Message+" "+note, v1alpha1.MaxMessageBytes)
		s.Output = result.AddLine(s.Output, note)
	}
	return s
}

// prefixNote says of a program that wasn't found, and that the call didn't name, who did and what helps; empty for any other.
func prefixNote(o *observation, outcome *result.Outcome) string {
	action := o.call.Status.Action
	isOther := outcome.Reason != result.CommandNotFound || len(outcome.Refused) > 0
	if isOther || action == nil || o.decision == nil || len(o.decision.ArgvPrefix) == 0 {
		return ""
	}
	field := "shell (spec.shell"
	if action.Type == v1alpha1.ActionCode {
		field = "interpreter of the language (spec.interpreters"
	}
	return " It is the environment's " + field + " of the ExecutionEnvironment): set one there that the image has, or use a structured call."
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

// setEnvironment writes what the runner found the environment to be: names and sources.
func setEnvironment(s *v1alpha1.ToolCallStatus, env *wire.Environment) {
	if s.Environment == nil {
		s.Environment = &v1alpha1.ResolvedEnvironment{}
	}
	s.Environment.WorkingDir = bounds.PathEnd(env.WorkingDir, v1alpha1.MaxPathBytes)
	var omitted int32
	s.Environment.StrippedEnv, omitted = bounds.Names(env.Stripped)
	s.Environment.OmittedStrippedEnv = addOmitted(omitted, env.OmittedStripped)
	variables := make([]v1alpha1.ResolvedEnvVar, len(env.Vars))
	for i, v := range env.Vars {
		variables[i] = v1alpha1.ResolvedEnvVar{Name: v.Name, Source: v1alpha1.EnvSource(v.Source)}
	}
	s.Environment.Env, omitted = bounds.Variables(variables)
	s.Environment.OmittedEnv = addOmitted(omitted, env.OmittedVars)
}

// addOmitted adds the names that the runner has left out already.
func addOmitted(omitted int32, before int) int32 {
	return int32(min(int(omitted)+min(before, math.MaxInt32), math.MaxInt32))
}

// setOutput writes both streams and the text for a model. What the policy lets through can still be more than an object
// holds (what stands in stdout and stderr is in output too, and escaping makes them longer): then less of each stream is
// kept, and truncated says so.
func setOutput(s *v1alpha1.ToolCallStatus, call *v1alpha1.ToolCall, outcome *result.Outcome, specBytes int) {
	if !outcome.Started {
		return
	}
	rest := bounds.MaxObjectBytes - specBytes - output.MaxStatusBytes
	// A byte that isn't UTF-8 becomes three in the text.
	for limit := 3 * max(kept(&outcome.Stdout), kept(&outcome.Stderr)); ; limit = limit * 2 / 3 {
		setStreams(s, call, outcome, limit)
		if limit == 0 || encodedSize(s) <= rest {
			return
		}
	}
}

func kept(stream *result.Stream) int { return len(stream.Head) + len(stream.Tail) }

func setStreams(s *v1alpha1.ToolCallStatus, call *v1alpha1.ToolCall, outcome *result.Outcome, limit int) {
	stdout, cutOut := outcome.Stdout.Text(limit)
	stderr, cutErr := outcome.Stderr.Text(limit)
	s.Stdout, s.Stderr = stdout, stderr
	s.Streams = &v1alpha1.StreamsStatus{Stdout: streamStatus(&outcome.Stdout, cutOut), Stderr: streamStatus(&outcome.Stderr, cutErr)}
	if s.File != nil {
		s.Output = fileOutput(stdout, s)
		return
	}
	s.Output = result.Output(outcome, outcome.Shown(limit, call.Namespace, call.Name), s.Message)
}

func streamStatus(s *result.Stream, truncated bool) v1alpha1.StreamStatus {
	return v1alpha1.StreamStatus{Bytes: s.Bytes, SHA256: s.SHA256, Truncated: truncated, InvalidUTF8: s.InvalidUTF8}
}

func encodedSize(object any) int {
	raw, err := json.Marshal(object)
	if err != nil {
		return bounds.MaxObjectBytes + 1
	}
	return len(raw)
}

// setArtifacts writes what the call collected. Its runner's result was checked: it is within the bounds of the API.
func setArtifacts(s *v1alpha1.ToolCallStatus, collected *result.Artifacts) {
	if collected == nil {
		return
	}
	s.OmittedArtifacts, s.ArtifactsMessage = collected.Omitted, collected.Message
	for i := range collected.Kept {
		a := &collected.Kept[i]
		s.Artifacts = append(s.Artifacts, v1alpha1.Artifact{Path: a.Path, Bytes: a.Bytes, SHA256: a.SHA256, MediaType: a.MediaType})
	}
}

// storeWait is how long the end of a call waits for its output to be stored.
const storeWait = 2 * time.Second

// outputOf says which output of the call is to be kept.
func (o *observation) outputOf() output.Of {
	of := output.Of{Call: o.name, UID: o.call.UID, KeyHash: o.keyHash()}
	if d := o.decision; d != nil {
		of.StatusBytes, of.KeepBytes = int64(d.MaxBytesPerStream), d.KeepBytesPerStream
	}
	return of
}

// storeOutput has what the status of a call that has just ended shortens, or names, stored, and says in that status how far it is.
// The status isn't to be written before left is over: until then all may be stored.
func (r *Reconciler) storeOutput(o *observation, e *effects, isGone bool) (left time.Duration) {
	of, s := o.outputOf(), e.status
	if s.File != nil || of.KeyHash == "" {
		return 0
	}
	if r.Outputs == nil {
		if !isGone {
			of.AddPodHints(o.call, s)
		}
		return 0
	}
	wanted := of.Wanted(s)
	if len(wanted) == 0 {
		return 0
	}
	states, since := r.Outputs.Finish(of, wanted, o.now, isGone)
	of.SetStored(s, o.call.Generation, o.now, states)
	of.AddHints(o.call, s)
	if !output.IsStoring(s) {
		return 0
	}
	return max(since.Add(storeWait).Sub(o.now), 0)
}

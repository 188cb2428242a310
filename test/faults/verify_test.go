package faults

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

// verify holds every call to what is promised, whatever happened, and adds the scenario to the summary. Calls must
// have succeeded unless the fault makes another reason the honest one.
func (l *load) verify(t *testing.T, fault string, took recovery, honest ...string) {
	t.Helper()
	seen, _, broken := l.snapshot()
	for _, what := range broken {
		t.Error(what)
	}
	starts := l.bed.starts(t)
	r := row{Fault: fault, Calls: len(l.calls), Ends: map[string]int{}, FirstCallSeconds: took.firstCall.Seconds(), AllSeconds: took.all.Seconds()}
	for _, want := range l.calls {
		call := seen[want.name]
		if call == nil || !hasEnded(call) {
			r.NotEnded++
			t.Errorf("call %s has not ended", want.name)
			continue
		}
		r.Ends[call.Status.Reason]++
		if starts[want.name] > 1 {
			r.RanTwice++
			t.Errorf("the command of call %s started %d times", want.name, starts[want.name])
		}
		for _, wrong := range judge(want, call, starts[want.name], honest) {
			r.Wrong++
			t.Errorf("call %s: %s", want.name, wrong)
		}
	}
	record(t, r)
}

// judge compares the end of a call with what its command did.
func judge(want *expected, call *v1alpha1.ToolCall, starts int, honest []string) (wrong []string) {
	s := &call.Status
	object := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if s.Phase == v1alpha1.PhaseSucceeded {
		if starts != 1 {
			object("it succeeded, and its command started %d times", starts)
		}
		if s.ExitCode == nil || *s.ExitCode != 0 || s.Streams == nil {
			object("it succeeded without exit code 0 or without its streams")
			return wrong
		}
		// Of a result that its pod left behind, the status shows what the copy in the termination message has.
		mayBeCopy := slices.Contains(honest, v1alpha1.ReasonPodLost)
		wrong = append(wrong, judgeStream("stdout", want.stdout, s.Stdout, s.Streams.Stdout, mayBeCopy)...)
		return append(wrong, judgeStream("stderr", want.stderr, s.Stderr, s.Streams.Stderr, mayBeCopy)...)
	}
	if !slices.Contains(honest, s.Reason) {
		object("it ended %s: %s", s.Reason, s.Message)
	}
	if s.ExitCode != nil && *s.ExitCode >= 0 {
		object("it ended %s with exit code %d, which its command doesn't have", s.Reason, *s.ExitCode)
	}
	if s.RetrySafe == nil || *s.RetrySafe && starts > 0 {
		object("it says that creating it again is safe, and its command started %d times", starts)
	}
	return wrong
}

func judgeStream(name, want, got string, about v1alpha1.StreamStatus, mayBeCopy bool) (wrong []string) {
	digest := sha256.Sum256([]byte(want))
	expected := v1alpha1.StreamStatus{Bytes: int64(len(want)), SHA256: hex.EncodeToString(digest[:]), Truncated: len(want) > kept}
	// What the store has is checked where the output is read.
	about.Kept, about.State = nil, ""
	if about != expected {
		wrong = append(wrong, fmt.Sprintf("%s is said to be %+v, not %+v", name, about, expected))
	}
	isShown := got == shown(want, kept)
	for less := kept - 1; mayBeCopy && !isShown && less > 0; less-- {
		isShown = got == shown(want, less)
	}
	if !isShown {
		wrong = append(wrong, fmt.Sprintf("%s, %d bytes, is not the text that was written, %d bytes", name, len(got), len(want)))
	}
	return wrong
}

// shown is what a status shows of a stream that may take so many bytes, as it is specified, written down a second time.
func shown(all string, kept int) string {
	left := len(all) - kept
	if left <= 0 {
		return all
	}
	head, tail, unit := all[:kept-kept/2], all[len(all)-kept/2:], "bytes"
	if left == 1 {
		unit = "byte"
	}
	if head[len(head)-1] != '\n' {
		head += "\n"
	}
	return head + fmt.Sprintf("[... %d %s left out ...]\n", left, unit) + tail
}

package e2e

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// outcome is the end of a call as a client reads it, byte for byte.
type outcome struct {
	Phase          v1alpha1.Phase
	Reason         string
	Exit           *int32
	Signal         string
	Stdout, Stderr string
	RetrySafe      *bool
}

func succeeded(stdout string) outcome {
	return outcome{Phase: v1alpha1.PhaseSucceeded, Reason: v1alpha1.ReasonCompleted, Exit: ptr.To(int32(0)), Stdout: stdout}
}

// exited is the end of a command with a code of its own.
func exited(code int32, stdout, stderr string) outcome {
	return outcome{Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonNonZeroExit, Exit: &code, Stdout: stdout, Stderr: stderr, RetrySafe: ptr.To(false)}
}

// stopped is the end of a command without an exit code of its own.
func stopped(reason, signal, stdout string) outcome {
	return outcome{Phase: v1alpha1.PhaseFailed, Reason: reason, Signal: signal, Stdout: stdout, RetrySafe: ptr.To(false)}
}

// neverRan is a failure before the command could start.
func neverRan(reason string) outcome {
	return outcome{Phase: v1alpha1.PhaseFailed, Reason: reason, RetrySafe: ptr.To(true)}
}

func denied(reason string) outcome { return outcome{Phase: v1alpha1.PhaseDenied, Reason: reason} }

// expect compares the end of a call with what it should be.
func expect(t *testing.T, call *v1alpha1.ToolCall, want outcome) {
	t.Helper()
	s := &call.Status
	got := outcome{s.Phase, s.Reason, s.ExitCode, s.Signal, s.Stdout, s.Stderr, s.RetrySafe}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("call %s ended otherwise (-want +got):\n%s\nmessage: %s", call.Name, clip(diff, 4000), s.Message)
	}
}

// expectMessage wants every part in the call's message.
func expectMessage(t *testing.T, call *v1alpha1.ToolCall, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(call.Status.Message, part) {
			t.Errorf("the message of call %s lacks %q: %s", call.Name, part, call.Status.Message)
		}
	}
}

// expectRefused wants the API server to say no, with every part in its answer.
func expectRefused(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		t.Fatalf("the API server's answer is %v, not a refusal", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the answer lacks %q: %v", part, err)
		}
	}
}

// checkFinished holds every call that ended to what is promised of all of them.
func checkFinished(t *testing.T, call *v1alpha1.ToolCall) {
	t.Helper()
	s := &call.Status
	reached.Store(s.Reason, true)
	if !s.Phase.Terminal() || s.Reason == "" || s.Message == "" || s.Output == "" || s.ObservedGeneration == 0 {
		t.Errorf("call %s: phase %q, reason %q, message %q, output %q, generation %d: a finished call has all of them",
			call.Name, s.Phase, s.Reason, clip(s.Message, 500), clip(s.Output, 500), s.ObservedGeneration)
	}
	if got, want := condition(call, v1alpha1.ConditionSucceeded) == metav1.ConditionTrue, s.Phase == v1alpha1.PhaseSucceeded; got != want {
		t.Errorf("call %s: condition Succeeded is %t in phase %s", call.Name, got, s.Phase)
	}
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionStarted} {
		if condition(call, kind) == "" {
			t.Errorf("call %s: condition %s is missing", call.Name, kind)
		}
	}
	if s.Timings == nil || s.Timings.FinishedMilliseconds == nil {
		t.Errorf("call %s: timings.finishedMilliseconds is missing", call.Name)
	}
	if s.Streams != nil {
		checkRan(t, call)
	}
}

// checkRan holds for calls whose command ran and is known to have ended.
func checkRan(t *testing.T, call *v1alpha1.ToolCall) {
	t.Helper()
	s := &call.Status
	if s.StartTime == nil || s.CompletionTime == nil || s.DurationMilliseconds == nil || s.Pod == "" || s.Node == "" {
		t.Fatalf("call %s: a call that ran has times, a duration, and the names of its pod and node", call.Name)
	}
	if inSession := s.Timings.Path == v1alpha1.PathSession; inSession != (s.Session != nil) || inSession != (s.Job == "") {
		t.Errorf("call %s went %s, with session %v and Job %q", call.Name, s.Timings.Path, s.Session, s.Job)
	}
	took := s.CompletionTime.Sub(s.StartTime.Time)
	duration := time.Duration(*s.DurationMilliseconds) * time.Millisecond
	if off := took - duration; off < -10*time.Millisecond || off > 10*time.Millisecond {
		t.Errorf("call %s: duration %s, but from start to completion it took %s", call.Name, duration, took)
	}
	checkStream(t, call.Name+" stdout", s.Stdout, s.Streams.Stdout)
	checkStream(t, call.Name+" stderr", s.Stderr, s.Streams.Stderr)
	if s.File != nil {
		// Of these the output has no times, and a sentence where there is nothing else to show.
		begin := strings.TrimSuffix(s.Stdout, "\n")
		if strings.TrimSpace(s.Stdout) == "" || s.File.Binary {
			begin = s.Message
		}
		if !strings.HasPrefix(s.Output, begin) {
			t.Errorf("call %s: stdout %q, message %q, output %q", call.Name, clip(s.Stdout, 500), s.Message, clip(s.Output, 500))
		}
		return
	}
	checkOutput(t, call)
}

// checkOutput looks at the text for a model. In which order both streams came isn't known here.
func checkOutput(t *testing.T, call *v1alpha1.ToolCall) {
	t.Helper()
	s := &call.Status
	begin := ""
	isPlain := func(text string) bool {
		return !strings.ContainsFunc(strings.NewReplacer("\n", "", "\t", "").Replace(text), unicode.IsControl)
	}
	if one := s.Stdout + s.Stderr; s.Stdout == "" || s.Stderr == "" {
		if begin = cmp.Or(one, "(no output)"); !isPlain(one) {
			begin = ""
		}
	}
	parts := []string{begin, "\n\n" + tookText(*s.DurationMilliseconds)}
	switch {
	case s.ExitCode == nil:
		parts = append(parts, "\n\n"+s.Message+"\n")
	case *s.ExitCode != 0:
		parts = append(parts, fmt.Sprintf("\n\nCommand exited with code %d\n", *s.ExitCode))
	}
	if n := len(s.Refused); n > 0 {
		parts = append(parts, "was not allowed to run")
	}
	if n := len(deniedHosts(call)); n > 0 {
		parts = append(parts, "was not allowed: ")
	}
	if more := moreText(call); more != "" {
		parts = append(parts, more+"\n\nTook ")
	}
	for _, part := range parts {
		if !strings.Contains(s.Output, part) {
			t.Errorf("call %s: the output lacks %q: %s", call.Name, clip(part, 1000), clip(s.Output, 4000))
		}
	}
	if !strings.HasPrefix(s.Output, begin) || !strings.HasSuffix(s.Output, parts[1]) || s.ExitCode == nil && strings.Contains(s.Output, "Command exited with code") {
		t.Errorf("call %s: the output is %q", call.Name, clip(s.Output, 4000))
	}
}

// checkStream compares what is said of a stream with its text, where that is all of it.
func checkStream(t *testing.T, name, text string, about v1alpha1.StreamStatus) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%s is not UTF-8", name)
	}
	if about.Truncated {
		isWhole := about.State == v1alpha1.StreamComplete && about.Kept != nil && *about.Kept == about.Bytes
		if !isWhole && about.State != v1alpha1.StreamShortened {
			t.Errorf("%s: the output store has %+v", name, about)
		}
		return
	}
	if about.InvalidUTF8 {
		return
	}
	if want := (v1alpha1.StreamStatus{Bytes: int64(len(text)), SHA256: sum(text)}); about != want {
		t.Errorf("%s (-want +got):\n%s", name, gocmp.Diff(want, about))
	}
}

// tookText is how long a call took, as it is specified, written down a second time.
func tookText(milliseconds int64) string {
	tenths := (milliseconds + 50) / 100
	if tenths >= 600 {
		return fmt.Sprintf("Took %dm %d.%ds", tenths/600, tenths%600/10, tenths%10)
	}
	return fmt.Sprintf("Took %d.%ds", tenths/10, tenths%10)
}

// moreText says how to get what the status shortens.
func moreText(call *v1alpha1.ToolCall) (text string) {
	for _, stream := range []struct {
		name  string
		about v1alpha1.StreamStatus
	}{{"stdout", call.Status.Streams.Stdout}, {"stderr", call.Status.Streams.Stderr}} {
		if !stream.about.Truncated {
			continue
		}
		if text == "" {
			text = "\n"
		}
		text += fmt.Sprintf("\nMore of %s (%d bytes in all): kubectl toolcall logs %s -n %s --stream %[1]s, or GET /apis/subresources.toolcall.dev/v1alpha1/namespaces/%[4]s/toolcalls/%[3]s/log?stream=%[1]s&offset=0",
			stream.name, stream.about.Bytes, call.Name, call.Namespace)
	}
	return text
}

func sum(text string) string {
	digest := sha256.Sum256([]byte(text))
	return hex.EncodeToString(digest[:])
}

func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:limit] + fmt.Sprintf("… (%d bytes more)", len(text)-limit)
}

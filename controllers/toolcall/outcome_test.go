package toolcall

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
)

func TestAResultBecomesTheCallsEnd(t *testing.T) {
	t.Parallel()
	exit := func(code int32) func(*result.Outcome) {
		return func(o *result.Outcome) { o.ExitCode = result.Exit(code) }
	}
	unstarted := func(reason string) func(*result.Outcome) {
		return func(o *result.Outcome) { *o = result.Outcome{Reason: reason, Message: "it did not start"} }
	}
	ended := func(reason, signal string) func(*result.Outcome) {
		return func(o *result.Outcome) {
			o.Reason, o.Signal, o.Message, o.ExitCode = reason, signal, "it ended", nil
		}
	}
	failed := func(o *result.Outcome) { o.Reason, o.Message = result.NonZeroExit, "it failed"; exit(3)(o) }
	for name, tc := range map[string]struct {
		change func(*result.Outcome)
		phase  v1alpha1.Phase
		reason string
		exit   *int32
		signal string
		safe   *bool
		ran    bool
	}{
		"exit code 0":             {exit(0), v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, ptr.To(int32(0)), "", nil, true},
		"another exit code":       {failed, v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, ptr.To(int32(3)), "", ptr.To(false), true},
		"the time limit":          {ended(result.TimedOut, ""), v1alpha1.PhaseFailed, v1alpha1.ReasonTimedOut, nil, "", ptr.To(false), true},
		"a signal":                {ended(result.Signaled, "SIGSEGV"), v1alpha1.PhaseFailed, v1alpha1.ReasonSignaled, nil, "SIGSEGV", ptr.To(false), true},
		"no memory":               {ended(result.OOMKilled, "SIGKILL"), v1alpha1.PhaseFailed, v1alpha1.ReasonOOMKilled, nil, "SIGKILL", ptr.To(false), true},
		"a cancel while it ran":   {ended(result.CancelRequested, "SIGTERM"), v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, nil, "SIGTERM", ptr.To(false), true},
		"a cancel before it ran":  {unstarted(result.CancelRequested), v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, nil, "", ptr.To(true), false},
		"no such program":         {unstarted(result.CommandNotFound), v1alpha1.PhaseFailed, v1alpha1.ReasonCommandNotFound, nil, "", ptr.To(true), false},
		"no such directory":       {unstarted(result.WorkingDirNotFound), v1alpha1.PhaseFailed, v1alpha1.ReasonWorkingDirNotFound, nil, "", ptr.To(true), false},
		"a directory outside":     {unstarted(result.WorkingDirNotAllowed), v1alpha1.PhaseFailed, v1alpha1.ReasonWorkingDirNotAllowed, nil, "", ptr.To(true), false},
		"variables that are none": {unstarted(result.InvalidEnvironment), v1alpha1.PhaseFailed, v1alpha1.ReasonInvalidEnvironment, nil, "", ptr.To(true), false},
		"no start in time":        {unstarted(result.StartTimeout), v1alpha1.PhaseFailed, v1alpha1.ReasonStartTimeout, nil, "", ptr.To(true), false},
		"a pod that was stopped":  {unstarted(result.PodLost), v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, nil, "", ptr.To(true), false},
	} {
		reported := outcome(tc.change)
		if err := reported.Validate(); err != nil {
			t.Fatalf("%s: no runner reports that: %v", name, err)
		}
		s := observed(bound).withResult(reported, 0)
		if s.Phase != tc.phase || s.Reason != tc.reason || s.Signal != tc.signal {
			t.Errorf("%s: %s, %s, %s", name, s.Phase, s.Reason, s.Signal)
		}
		if diff := cmp.Diff(tc.exit, s.ExitCode) + cmp.Diff(tc.safe, s.RetrySafe); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if ran := s.StartTime != nil && s.CompletionTime != nil && s.DurationMilliseconds != nil && s.Streams != nil; ran != tc.ran {
			t.Errorf("%s: it ran: %t", name, ran)
		}
		if tc.exit == nil && tc.ran && s.Output != "out\nerr\n\nIt ended\n\nTook 1.5s" {
			t.Errorf("%s: output %q", name, s.Output)
		}
		if !tc.ran && (s.Output != "It did not start" || s.Stdout != "" || s.Message != "It did not start") {
			t.Errorf("%s: output %q, message %q", name, s.Output, s.Message)
		}
		if s.Runner.Decision != "" {
			t.Errorf("%s: the decision is kept", name)
		}
	}
}

// Who sent a shell line or code didn't name the program that isn't there.
func TestAMissingShellOrInterpreterIsTheEnvironments(t *testing.T) {
	t.Parallel()
	missing := outcome(func(o *result.Outcome) {
		*o = result.Outcome{Reason: result.CommandNotFound, Message: `"x" was not found.`}
	})
	for action, want := range map[v1alpha1.ActionType]string{
		v1alpha1.ActionShell: "spec.shell", v1alpha1.ActionCode: "spec.interpreters", v1alpha1.ActionStructured: "",
	} {
		o := observed(bound)
		o.call.Status.Action, o.decision = &v1alpha1.MappedAction{Type: action}, &decide.Decision{}
		if want != "" {
			o.decision.ArgvPrefix = []string{"x"}
		}
		if s := o.withResult(missing, 0); !strings.Contains(s.Message, want) || strings.Contains(s.Message, "It is") != (want != "") {
			t.Errorf("%s: %s", action, s.Message)
		}
	}
}

func TestAResultTellsWhatTheProcessLeftRunning(t *testing.T) {
	t.Parallel()
	left := outcome()
	left.Outcome.LeftRunning = 2
	if s := observed(bound).withResult(left, 0); !strings.Contains(s.Output, "\n\n"+left.Outcome.LeftRunningLine()) {
		t.Errorf("output %q", s.Output)
	}
}

func TestAResultTellsWhatTheProcessDid(t *testing.T) {
	t.Parallel()
	s := observed(bound).withResult(outcome(), 0)
	if s.Stdout != "out\n" || s.Stderr != "err\n" || s.Output != "out\nerr\n\nTook 1.5s" || s.Message != "The command exited with code 0" {
		t.Errorf("stdout %q, stderr %q, output %q, message %q", s.Stdout, s.Stderr, s.Output, s.Message)
	}
	if *s.DurationMilliseconds != 1500 || !s.StartTime.Equal(ptr.To(metav1.NewMicroTime(start.Add(time.Second)))) || !s.CompletionTime.Time.Equal(start.Add(2500*time.Millisecond)) {
		t.Errorf("from %s to %s, %d ms", s.StartTime, s.CompletionTime, *s.DurationMilliseconds)
	}
	want := &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: 4}, Stderr: v1alpha1.StreamStatus{Bytes: 4}}
	if diff := cmp.Diff(want, s.Streams); diff != "" {
		t.Error(diff)
	}
}

func TestAResultTellsNamesOfVariablesAndNoMore(t *testing.T) {
	t.Parallel()
	reported := outcome()
	reported.Environment = wire.Environment{WorkingDir: "/w", Stripped: []string{"AWS_KEY"}}
	for i := range 1000 {
		reported.Environment.Vars = append(reported.Environment.Vars, envresolve.ResolvedVar{Name: fmt.Sprint("V", i), Source: envresolve.SourceImage})
	}
	o := observed(bound)
	s := o.withResult(reported, 0)
	if s.Environment.Name != "env" || !s.Environment.Trusted || s.Environment.WorkingDir != "/w" || !cmp.Equal(s.Environment.StrippedEnv, []string{"AWS_KEY"}) {
		t.Errorf("got %+v", s.Environment)
	}
	if kept := len(s.Environment.Env); kept == 0 || kept+int(s.Environment.OmittedEnv) != 1000 || s.Environment.Env[0] != (v1alpha1.ResolvedEnvVar{Name: "V0", Source: v1alpha1.EnvSourceImage}) {
		t.Errorf("%d variables", len(s.Environment.Env))
	}
	// Of a call whose environment nobody knows there is what the runner says.
	o.call.Status.Environment = nil
	o.decision = nil
	if s := o.withResult(reported, 0); s.Environment.WorkingDir != "/w" || s.Environment.Name != "" {
		t.Errorf("got %+v", s.Environment)
	}
}

// The runner leaves out of long lists what no result carries.
func TestAStatusCountsTheNamesThatTheRunnerLeftOut(t *testing.T) {
	t.Parallel()
	for omitted, want := range map[int]int32{0: 0, 744: 744, math.MaxInt: math.MaxInt32} {
		reported := outcome()
		reported.Environment = wire.Environment{
			Vars: result.List[envresolve.ResolvedVar]{{Name: "V", Source: envresolve.SourceImage}}, OmittedVars: omitted,
			Stripped: result.List[string]{"AWS_KEY"}, OmittedStripped: omitted,
		}
		e := observed(bound).withResult(reported, 0).Environment
		if len(e.Env) != 1 || e.OmittedEnv != want || len(e.StrippedEnv) != 1 || e.OmittedStrippedEnv != want {
			t.Errorf("%d are left out, and the status says %+v", omitted, e)
		}
	}
}

// stream is the output of a process that wrote so much of it, all of it kept.
func stream(content string) result.Stream {
	sum := sha256.Sum256([]byte(content))
	half := len(content) / 2
	return result.Stream{Head: []byte(content[:half]), Tail: []byte(content[half:]), Bytes: int64(len(content)), SHA256: hex.EncodeToString(sum[:]), InvalidUTF8: !utf8.ValidString(content)}
}

// What a process writes takes up to six times its size as JSON, and stands in the status twice.
func TestAStatusFitsWhateverTheProcessWrote(t *testing.T) {
	t.Parallel()
	for name, unit := range map[string]string{
		"letters": "x", "control characters": "\x01", "no UTF-8": "\xff", "wide characters": "日本",
	} {
		for _, specBytes := range []int{0, 1200 << 10} {
			content := strings.Repeat(unit, result.MaxStreamBytes/len(unit))
			reported := outcome(func(o *result.Outcome) { o.Stdout, o.Stderr = stream(content), stream(content) })
			if err := reported.Validate(); err != nil {
				t.Fatal(err)
			}
			s := observed(bound).withResult(reported, specBytes)
			raw, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			if len(raw)+specBytes > bounds.MaxObjectBytes {
				t.Errorf("%s beside %d bytes: the status takes %d", name, specBytes, len(raw))
			}
			if !utf8.ValidString(s.Stdout) || !utf8.ValidString(s.Output) {
				t.Errorf("%s beside %d bytes: no UTF-8", name, specBytes)
			}
			if s.Streams.Stdout.Bytes != int64(len(content)) || s.Streams.Stdout.SHA256 != reported.Outcome.Stdout.SHA256 {
				t.Errorf("%s beside %d bytes: %+v", name, specBytes, s.Streams)
			}
			if whole := !strings.Contains(s.Stdout, "left out"); whole == s.Streams.Stdout.Truncated {
				t.Errorf("%s beside %d bytes: truncated: %t, whole: %t", name, specBytes, s.Streams.Stdout.Truncated, whole)
			}
		}
	}
}

func TestNothingIsLeftOutOfWhatFits(t *testing.T) {
	t.Parallel()
	for name, unit := range map[string]string{"letters": "x", "no UTF-8": "\xff", "wide characters": "日"} {
		content := strings.Repeat(unit, (64<<10)/len(unit))
		s := observed(bound).withResult(outcome(func(o *result.Outcome) { o.Stdout, o.Stderr = stream(content), stream(content) }), 10<<10)
		if s.Streams.Stdout.Truncated || unit != "\xff" && s.Stdout != content {
			t.Errorf("%s: truncated: %t, %d bytes", name, s.Streams.Stdout.Truncated, len(s.Stdout))
		}
	}
}

func TestWhatCannotBeEncodedIsTooLarge(t *testing.T) {
	t.Parallel()
	if encodedSize(func() {}) <= bounds.MaxObjectBytes || encodedSize("x") != 3 {
		t.Error("sizes are wrong")
	}
}

// What the kernel held and refused is in the status, and the text for a model says why the command failed.
func TestAStatusSaysWhatWasExecutedAndRefused(t *testing.T) {
	t.Parallel()
	sentence := `"/usr/bin/curl" was not allowed to run: add it to binaries.allowed of policy "agents".`
	o := observed(bound)
	s := o.withResult(outcome(func(o *result.Outcome) {
		o.Reason, o.ExitCode, o.Message, o.Refusal = result.NonZeroExit, result.Exit(1), "The command exited with code 1. "+sentence, sentence
		o.Executed, o.MoreExecuted = result.Programs{{Path: "/usr/bin/bash", Count: 1}}, 7
		o.Refused, o.MoreRefused = result.Programs{{Path: strings.Repeat("/long", 60), Count: 2, Rule: result.RuleNotListed}}, 3
		o.Isolation = &result.Isolation{LandlockABI: 7, Programs: true, Writes: true, Writable: result.Paths{"/workspace/bin"}, NotFound: result.Paths{"jq"}}
	}), 0)
	if diff := cmp.Diff([]v1alpha1.ExecutedProgram{{Path: "/usr/bin/bash", Count: 1}}, s.Executed); diff != "" || s.OmittedExecuted != 7 || s.OmittedRefused != 3 {
		t.Errorf("%d, %d more: %s", s.OmittedExecuted, s.OmittedRefused, diff)
	}
	if r := s.Refused; len(r) != 1 || r[0].Count != 2 || r[0].Rule != result.RuleNotListed || len(r[0].Path) > v1alpha1.MaxPathBytes || !strings.HasSuffix(r[0].Path, "/long") {
		t.Errorf("refused: %+v", r)
	}
	want := &v1alpha1.Isolation{LandlockABI: 7, Programs: true, Writes: true, Writable: []string{"/workspace/bin"}, NotFound: []string{"jq"}}
	if diff := cmp.Diff(want, s.Isolation); diff != "" {
		t.Error(diff)
	}
	if !strings.HasSuffix(s.Message, sentence) || !strings.HasSuffix(s.Output, "\n\nCommand exited with code 1\n"+sentence+"\n\nTook 1.5s") {
		t.Errorf("message %q, output %q", s.Message, s.Output)
	}
	succeeded := o.withResult(outcome(func(o *result.Outcome) { o.Refusal = sentence }), 0)
	if want := "out\nerr\n\n" + sentence + "\n\nTook 1.5s"; succeeded.Output != want || succeeded.Message != "The command exited with code 0" {
		t.Errorf("message %q, output %q", succeeded.Message, succeeded.Output)
	}
	plain := o.withResult(outcome(), 0)
	if plain.Isolation != nil || plain.Executed != nil || plain.Refused != nil || strings.Contains(plain.Output, "allowed to run") {
		t.Errorf("without rules: %+v", plain)
	}
}

func TestACallThatTheNodeCannotHoldNeverStarted(t *testing.T) {
	t.Parallel()
	s := observed(bound).withResult(&wire.Result{CallUID: "call-uid", Outcome: result.Outcome{Reason: result.IsolationUnavailable, Message: "The node gives no Landlock."}}, 0)
	if s.Phase != v1alpha1.PhaseFailed || s.Reason != v1alpha1.ReasonIsolationUnavailable || !*s.RetrySafe || s.ExitCode != nil {
		t.Errorf("ended %s/%s, %v, exit code %v", s.Phase, s.Reason, s.RetrySafe, s.ExitCode)
	}
}

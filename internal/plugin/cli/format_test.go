package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestDurations(t *testing.T) {
	t.Parallel()
	for ms, want := range map[int64]string{0: "0ms", 7: "7ms", 999: "999ms", 1000: "1.0s", 1540: "1.5s", 59_940: "59.9s", 60_000: "1m0s", 125_400: "2m5s", 3_600_000: "1h0m0s"} {
		if got := FormatMilliseconds(ms); got != want {
			t.Errorf("%d ms is %s, not %s", ms, got, want)
		}
	}
}

func TestRowsAreOneLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := NewTable(&out)
	cells := []string{"a\nb", "", " ", "c\td", "\x1b[2J"}
	w.Row("", cells...)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "a b  -  -  c d  ^[[2J\n" || cells[1] != "" {
		t.Errorf("got %q", got)
	}
}

func TestIndentedText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "  ", "a": "  a", "a\n": "  a", "a\nb\n": "  a\n  b", "a\n\n": "  a\n  "} {
		if got := Indent(text, "  "); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// FuzzQuoted compares with a shell: quoted arguments are the same arguments again.
func FuzzQuoted(f *testing.F) {
	for _, arg := range []string{"a", "", "a b", "it's", `"$HOME"`, "a;b|c&d", "~", "#x", "\\", "*?[", "{a,b}", "a=b", "!x", "-x", "a\nb"} {
		f.Add(arg, "plain")
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		if strings.ContainsAny(first+second, "\x00\r") {
			return
		}
		want := []string{"echo", first, second}
		parsed, err := syntax.NewParser().Parse(strings.NewReader("echo "+Quoted(want[1:])), "")
		if err != nil || len(parsed.Stmts) != 1 {
			t.Fatalf("%q is not one command: %v", Quoted(want[1:]), err)
		}
		command, ok := parsed.Stmts[0].Cmd.(*syntax.CallExpr)
		if !ok {
			t.Fatalf("%q is no command", Quoted(want[1:]))
		}
		got, err := expand.Fields(&expand.Config{}, command.Args...)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is read as %q: %v", Quoted(want[1:]), got, err)
		}
	})
}

// A call that starts within a second shows no progress. After that, each state shows once.
func TestProgressComesAfterADelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := NewProgress(&out, false, ProgressDelay)
		call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
		p.Update(call)
		time.Sleep(ProgressDelay - time.Millisecond)
		synctest.Wait()
		if out.String() != "" {
			t.Errorf("too early: %q", out.String())
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		p.Update(call)
		call.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStarted, Message: "waits\x1b for a node"}}
		p.Update(call)
		p.Update(call)
		p.Stop()
		call.Status.Conditions[0].Message = "too late"
		p.Update(call)
		if want := "call c: waiting for the operator\ncall c: waiting: waits^[ for a node\n"; out.String() != want {
			t.Errorf("got %q", out.String())
		}
	})
}

func TestProgressOfAQuickCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := NewProgress(&out, false, ProgressDelay)
		p.Update(&v1alpha1.ToolCall{Status: v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning}})
		time.Sleep(time.Minute)
		synctest.Wait()
		p.Stop()
		if out.Len() > 0 {
			t.Errorf("got %q", out.String())
		}
	})
}

func TestQuietProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := NewProgress(&out, true, ProgressDelay)
		p.Update(&v1alpha1.ToolCall{})
		time.Sleep(time.Minute)
		synctest.Wait()
		p.Stop()
		if out.Len() > 0 {
			t.Errorf("got %q", out.String())
		}
	})
}

// What a call waits for comes from its condition Started; Succeeded, Unknown until the end, says nothing about that.
func TestWhatACallWaitsFor(t *testing.T) {
	t.Parallel()
	condition := func(kind string, status metav1.ConditionStatus, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Message: message}
	}
	for name, c := range map[string]struct {
		status v1alpha1.ToolCallStatus
		want   string
	}{
		"a new call":            {v1alpha1.ToolCallStatus{}, "call c: waiting for the operator"},
		"an accepted call":      {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhasePending, Conditions: []metav1.Condition{condition(v1alpha1.ConditionAccepted, "True", "ok")}}, "call c: waiting for the operator"},
		"a call in a queue":     {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhasePending, Conditions: []metav1.Condition{condition(v1alpha1.ConditionStarted, "False", "queued")}}, "call c: waiting: queued"},
		"an undecided success":  {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhasePending, Conditions: []metav1.Condition{condition(v1alpha1.ConditionSucceeded, "Unknown", "not yet")}}, "call c: waiting for the operator"},
		"a message of no words": {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhasePending, Conditions: []metav1.Condition{condition(v1alpha1.ConditionStarted, "False", "")}}, "call c: waiting for the operator"},
		"a running call":        {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning, Conditions: []metav1.Condition{condition(v1alpha1.ConditionStarted, "True", "started")}}, ""},
		"a finished call":       {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Conditions: []metav1.Condition{condition(v1alpha1.ConditionStarted, "False", "denied")}}, ""},
	} {
		call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Status: c.status}
		if got := pendingReason(call); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestProgressOfASlowCall(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&out, false, ProgressDelay)
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	p.Update(call)
	if out.Len() > 0 {
		t.Errorf("at once: %q", out.String())
	}
	p.due = true
	p.Update(call)
	p.Update(call)
	call.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStarted, Message: "it waits for its turn"}}
	p.Update(call)
	call.Status.Phase = v1alpha1.PhaseRunning
	p.Update(call)
	p.Stop()
	if out.String() != "call c: waiting for the operator\ncall c: waiting: it waits for its turn\n" {
		t.Errorf("got %q", out.String())
	}
}

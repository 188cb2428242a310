package plugin

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"toolcall.dev/operator/api/v1alpha1"
)

func sortedFields(text string) string {
	fields := strings.Fields(text)
	slices.Sort(fields)
	return strings.Join(fields, " ")
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for ms, want := range map[int64]string{0: "0ms", 7: "7ms", 999: "999ms", 1000: "1.0s", 1540: "1.5s", 59_940: "59.9s", 60_000: "1m0s", 125_400: "2m5s", 3_600_000: "1h0m0s"} {
		if got := formatMilliseconds(ms); got != want {
			t.Errorf("%d ms is %s, not %s", ms, got, want)
		}
	}
}

func TestRowsAreOneLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := newTable(&out)
	cells := []string{"a\nb", "", " ", "c\td", "\x1b[2J"}
	writeRow(w, cells)
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
		if got := indent(text, "  "); got != want {
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
		parsed, err := syntax.NewParser().Parse(strings.NewReader("echo "+quoted(want[1:])), "")
		if err != nil || len(parsed.Stmts) != 1 {
			t.Fatalf("%q is not one command: %v", quoted(want[1:]), err)
		}
		command, ok := parsed.Stmts[0].Cmd.(*syntax.CallExpr)
		if !ok {
			t.Fatalf("%q is no command", quoted(want[1:]))
		}
		got, err := expand.Fields(&expand.Config{}, command.Args...)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is read as %q: %v", quoted(want[1:]), got, err)
		}
	})
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.String()
}

// A call that starts within a second shows no progress. After that, each state shows once.
func TestProgressComesAfterADelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		p := newProgress(&out, false, progressDelay)
		call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
		p.update(call)
		time.Sleep(progressDelay - time.Millisecond)
		synctest.Wait()
		if out.String() != "" {
			t.Errorf("too early: %q", out.String())
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		p.update(call)
		call.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStarted, Message: "waits\x1b for a node"}}
		p.update(call)
		p.update(call)
		p.stop()
		call.Status.Conditions[0].Message = "too late"
		p.update(call)
		if want := "call c: waiting for the operator\ncall c: waiting: waits^[ for a node\n"; out.String() != want {
			t.Errorf("got %q", out.String())
		}
	})
}

func TestProgressOfAQuickCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, false, progressDelay)
		p.update(&v1alpha1.ToolCall{Status: v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning}})
		time.Sleep(time.Minute)
		synctest.Wait()
		p.stop()
		if out.Len() > 0 {
			t.Errorf("got %q", out.String())
		}
	})
}

func TestQuietProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, true, progressDelay)
		p.update(&v1alpha1.ToolCall{})
		time.Sleep(time.Minute)
		synctest.Wait()
		p.stop()
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

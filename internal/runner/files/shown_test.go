package files

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/runner/redact"
	"toolcall.dev/operator/internal/spec"
)

const shownSecret = "correct-horse-battery"

// hides replaces a value by a mark that is longer or shorter.
func hides(value, mark string) func(text []byte) []redact.Span {
	return func(text []byte) (all []redact.Span) {
		at := 0
		for {
			next := bytes.Index(text[at:], []byte(value))
			if next < 0 {
				return all
			}
			all = append(all, redact.Span{Start: at + next, End: at + next + len(value), Name: "TOKEN", Mark: []byte(mark)})
			at += next + len(value)
		}
	}
}

// showing is a world whose files show nothing of the value.
func showing(t *testing.T, mark, content string) *showingWorld {
	t.Helper()
	w := &showingWorld{world: newWorld(t)}
	w.file("f", content)
	w.rules.Hidden, w.rules.HiddenAround = hides(shownSecret, mark), int64(len(shownSecret))*HiddenForm
	return w
}

// showingWorld counts what is replaced.
type showingWorld struct {
	*world
	count int64
}

func (w *showingWorld) must(r spec.File) (string, Result) {
	w.t.Helper()
	out, result := w.world.must(r)
	w.count += result.Redacted["TOKEN"]
	return out, result
}

// replaced is how often the value was replaced since it was asked last.
func (w *showingWorld) replaced() int64 {
	count := w.count
	w.count = 0
	return count
}

// leaks says that a text has a part of the value that tells more than how it begins.
func leaks(text string) bool {
	const least = 4
	for at := range len(shownSecret) - least {
		if strings.Contains(text, shownSecret[at:at+least]) {
			return true
		}
	}
	return false
}

func TestALineOfAGrepIsRedactedBeforeItIsCut(t *testing.T) {
	t.Parallel()
	for name, around := range map[string][2]int{
		"the value is at the end of what is shown":   {MaxLineBytes - MaxLineBytes/4 - 10, 4 * MaxLineBytes},
		"the value is at the start of what is shown": {-MaxLineBytes/4 - 10, 4 * MaxLineBytes},
	} {
		before, after := strings.Repeat("a", 2*MaxLineBytes+around[0]), strings.Repeat("c", around[1])
		text := []byte(before + " " + shownSecret + " " + after)
		copy(text[2*MaxLineBytes:], "MATCH")
		if !bytes.Contains(text, []byte(shownSecret)) {
			t.Fatal(name + ": the match is over the value")
		}
		w := showing(t, "[redacted: TOKEN]", string(text)+"\n")
		out, _ := w.must(spec.File{Operation: spec.OperationGrep, Path: "f", Pattern: "MATCH"})
		if leaks(out) || !strings.Contains(out, "MATCH") || !strings.Contains(out, `"cut":true`) {
			t.Errorf("%s: got %s", name, out)
		}
		if w.replaced() != 1 {
			t.Errorf("%s: counted another number", name)
		}
	}
}

func TestPathsOfResultsAreRedactedWithinTheBound(t *testing.T) {
	t.Parallel()
	mark := "[redacted: " + strings.Repeat("N", 200) + "]"
	w := showing(t, mark, "x")
	for i := range 20 {
		w.file(fmt.Sprintf("d/%02d-%s", i, shownSecret), "x")
	}
	w.rules.MaxOutputBytes = 2000
	for _, r := range []spec.File{
		{Operation: spec.OperationList, Path: "d"}, {Operation: spec.OperationGlob, Path: "d", Pattern: "*"}, {Operation: spec.OperationGrep, Path: "d", Pattern: "x"},
	} {
		out, result := w.must(r)
		lines := strings.Count(out, "\n")
		if count := w.replaced(); leaks(out) || len(out) > 2000 || !result.Truncated || lines != number(result.Matches) || count != int64(lines) {
			t.Errorf("%s: %d bytes, %+v", r.Operation, len(out), result)
		}
	}
}

func TestAPageThatEndsInAValueShowsNoPartOfIt(t *testing.T) {
	t.Parallel()
	content := "begin " + shownSecret + " end\n"
	w := showing(t, "[redacted: TOKEN]", content)
	for offset := range int64(len(content)) {
		for _, limit := range []int64{1, 3, 10, 1000} {
			out, result := w.must(spec.File{Operation: spec.OperationRead, Path: "f", Unit: spec.UnitBytes, Offset: offset, Limit: limit})
			if leaks(out) {
				t.Errorf("from %d on, %d bytes: %q", offset, limit, out)
			}
			if want := min(limit, int64(len(content))-offset); *result.Bytes != want {
				t.Errorf("from %d on, %d bytes: read %d", offset, limit, *result.Bytes)
			}
		}
	}
}

// A value of several lines, as a key is, is no less one where a page ends between them.
func TestALineOfAValueOfSeveralIsNotShown(t *testing.T) {
	t.Parallel()
	const key = "-----BEGIN-----\nAAAAB3NzaC1yc2E\n-----END-----"
	w := newWorld(t)
	w.file("f", "one\n"+key+"\nlast\n")
	w.rules.Hidden, w.rules.HiddenAround = hides(key, "[redacted: KEY]"), int64(len(key))*HiddenForm
	for offset := int64(1); offset <= 5; offset++ {
		for limit := int64(1); limit <= 5; limit++ {
			out, _ := w.must(spec.File{Operation: spec.OperationRead, Path: "f", Offset: offset, Limit: limit})
			if strings.Contains(out, "AAAA") || strings.Contains(out, "END") {
				t.Errorf("from line %d on, %d lines: %q", offset, limit, out)
			}
		}
	}
}

func TestAReadGoesOnWhereItsBoundCutIt(t *testing.T) {
	t.Parallel()
	mark := "[redacted: " + strings.Repeat("N", 200) + "]"
	var content, want strings.Builder
	for i := range 50 {
		fmt.Fprintf(&content, "%02d %s plain\n", i, shownSecret)
		fmt.Fprintf(&want, "%02d %s plain\n", i, mark)
	}
	w := showing(t, mark, content.String())
	w.rules.MaxOutputBytes = 1000
	var got strings.Builder
	var replaced, bytes int64
	next := int64(0)
	for reads := 0; ; reads++ {
		out, result := w.must(spec.File{Operation: spec.OperationRead, Path: "f", Offset: next})
		if len(out) > 1000 || reads > 50 || result.SHA256 != "" {
			t.Fatalf("read %d has %d bytes: %+v", reads, len(out), result)
		}
		if strings.Count(out, "\n") != number(result.Lines) {
			t.Errorf("read %d has not %d lines: %q", reads, number(result.Lines), out)
		}
		got.WriteString(out)
		replaced, bytes = replaced+w.replaced(), bytes+*result.Bytes
		if !result.Truncated {
			break
		}
		next = *result.NextOffset
	}
	if got.String() != want.String() || replaced != 50 || bytes != int64(content.Len()) {
		t.Errorf("%d values are replaced in %d bytes: %q", replaced, bytes, got.String())
	}
	w.rules.MaxOutputBytes = 100
	w.refused(spec.File{Operation: spec.OperationRead, Path: "f"}, reason.FileTooLarge, "redacted")
}

func TestAWholeReadThatIsRedactedHasNoSum(t *testing.T) {
	t.Parallel()
	content := shownSecret + "\n" + shownSecret
	w := showing(t, "[X]", content)
	out, result := w.must(spec.File{Operation: spec.OperationRead, Path: "f"})
	w.rules.Hidden = nil
	count := w.replaced()
	plain, unredacted := w.must(spec.File{Operation: spec.OperationRead, Path: "f"})
	if out != "[X]\n[X]" || plain != content || result.SHA256 != "" || unredacted.SHA256 == "" || *result.Bytes != int64(len(content)) || count != 2 {
		t.Errorf("got %q, %+v", out, result)
	}
}

// A sum of what isn't shown would let who has the rest of the file try values out.
func TestNoSumIsToldOfWhatIsNotShown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after int
		secret        string
		hasSum        bool
	}{
		"a content that is shown":   {100, 100, "correct-horse", true},
		"a value":                   {0, 0, shownSecret, false},
		"a value far behind":        {300_000, 10, shownSecret, false},
		"a large content":           {600_000, 600_000, "", true},
		"a value between two looks": {2*len(shownSecret) + sys.BufferBytes - 10, 200_000, shownSecret, false},
	} {
		content := strings.Repeat("a", c.before) + c.secret + strings.Repeat("b", c.after) + "\nEND\n"
		w := showing(t, "[X]", content)
		w.rules.MaxReadBytes = 1 << 21
		for _, r := range []spec.File{
			{Operation: spec.OperationRead, Path: "f", Unit: spec.UnitBytes}, {Operation: spec.OperationStat, Path: "f"},
			{Operation: spec.OperationEdit, Path: "f", OldString: "END", NewString: "end"},
		} {
			if _, got := w.must(r); (got.SHA256 != "") != c.hasSum {
				t.Errorf("%s of %s: %q", r.Operation, name, got.SHA256)
			}
		}
		// The one that the file has: a condition on it holds, and a message about another one doesn't tell it.
		has, wrong := sumOf([]byte(w.content("f"))), strings.Repeat("0", 64)
		for _, r := range []spec.File{
			{Operation: spec.OperationEdit, Path: "f", OldString: "end", NewString: "E"}, {Operation: spec.OperationWrite, Path: "f", Content: []byte("x")},
		} {
			r.IfSHA256 = &wrong
			if _, _, err := w.do(r); reasonOf(err) != reason.FileChanged || strings.Contains(err.Error(), has) {
				t.Errorf("%s of %s: %v", r.Operation, name, err)
			}
			r.IfSHA256 = &has
			w.must(r)
			has = sumOf([]byte(w.content("f")))
		}
	}
}

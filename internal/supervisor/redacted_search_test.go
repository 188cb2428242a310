package supervisor_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

// grepped are the lines that a Grep shows of a file with a content. A value that the tool wasn't given is foreign.
func grepped(t *testing.T, content, pattern, value string, isGiven bool) ([]string, result.Redactions) {
	t.Helper()
	e := executor(t)
	if err := os.WriteFile(e.WorkingDir+"/f", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	ref := wire.EnvRefPrefix + "1"
	e.Environ = append(e.Environ, ref+"="+value)
	a := shell(e, "")
	a.Argv, a.MaxBytesPerStream = nil, 1<<20
	a.Environment.Known = []envresolve.Known{{Name: "TOKEN", Ref: ref}}
	if isGiven {
		a.Environment.Layers = []envresolve.Layer{{Source: envresolve.SourceEnvironment, Vars: []envresolve.Var{{Name: "TOKEN", Ref: ref}}}}
	}
	a.File = &spec.File{Operation: "Grep", Path: "f", Pattern: pattern, Rules: spec.FileRules{ReadPaths: []string{e.WorkingDir}}}
	o := execute(t, e, a).Outcome
	if o.Reason != result.Completed {
		t.Fatal(o.Reason, o.Message)
	}
	var lines []string
	for object := range strings.Lines(string(o.Stdout.Head)) {
		var match struct{ Line string }
		if err := json.Unmarshal([]byte(object), &match); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, match.Line)
	}
	return lines, o.Redactions
}

func wrapped(text, end string, width int) string {
	var lines []string
	for chunk := range slices.Chunk([]byte(text), width) {
		lines = append(lines, string(chunk))
	}
	return strings.Join(lines, end)
}

func TestAGrepShowsNothingOfAValueOfSeveralLines(t *testing.T) {
	t.Parallel()
	const token = "github_pat_11AAAAAAA0abcdefghijklm_nopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdefgh"
	const key = "-----BEGIN KEY-----\nAAAAB3NzaC1yc2EAAAABBBBCCCC\nDDDDEEEEFFFF0000111122223333\n-----END KEY-----"
	const cut, mark = "[redacted]", "[redacted: TOKEN]"
	for name, test := range map[string]struct {
		value, text string
		marks       []string
		count       int64
	}{
		"base64, wrapped":                {token, wrapped(base64.RawStdEncoding.EncodeToString([]byte(token)), "\n", 76), []string{cut, mark}, 2},
		"a key":                          {key, key, []string{cut, cut, cut, mark}, 2},
		"a key with the other line ends": {key, strings.ReplaceAll(key, "\n", "\r\n"), []string{cut, cut, cut, mark}, 2},
	} {
		for _, isGiven := range []bool{false, true} {
			// Far from the end of what is searched at once, over it, and twice.
			for _, before := range []int{10, 256<<10 - len(test.text)/2, 256<<10 - 5} {
				filler := wrapped(strings.Repeat("x", before), "\n", 63)
				content := filler + "\nbefore\n" + test.text + "\nbetween\n" + test.text + "\nafter\n"
				got, redactions := grepped(t, content, "[^x]", test.value, isGiven)
				want := slices.Concat([]string{"before"}, test.marks, []string{"between"}, test.marks, []string{"after"})
				if !slices.Equal(got, want) {
					t.Errorf("%s, given: %v, after %d bytes: got %q", name, isGiven, before, got)
				}
				if !slices.Equal(redactions, result.Redactions{{Name: "TOKEN", Stream: result.RedactedStdout, Count: test.count}}) {
					t.Errorf("%s, given: %v, after %d bytes: counted %+v", name, isGiven, before, redactions)
				}
			}
		}
	}
}

// A line of 8 bytes and more is one by itself.
func TestAGrepShowsNoLineOfAValue(t *testing.T) {
	t.Parallel()
	const value = "a-line-that-counts-by-itself\nuser=abc\nend"
	for _, isGiven := range []bool{false, true} {
		got, redactions := grepped(t, "x"+value+"\n"+value+"\nuser=abc\nend\n", ".", value, isGiven)
		shown := strings.ReplaceAll(strings.Join(got, "\n"), "[redacted: TOKEN]", "[redacted]")
		if want := "x" + strings.Repeat("[redacted]\n", 7) + "end"; shown != want || len(redactions) != 1 {
			t.Errorf("got %q, %+v", got, redactions)
		}
	}
}

// The first 256 KiB of a line are searched. What follows them decides what is shown of their end.
func TestAGrepShowsNothingOfAValueAtTheEndOfWhatIsSearchedOfALine(t *testing.T) {
	t.Parallel()
	const value, searched = "correct-horse-battery", 256 << 10
	for inside := 1; inside <= len(value); inside++ {
		content := strings.Repeat("x", searched-inside) + value + strings.Repeat("y", 1000)
		got, _ := grepped(t, content, "[^x]", value, false)
		if len(got) != 1 || strings.Trim(strings.TrimSuffix(got[0], "[redacted]"), "x") != "" && !strings.HasSuffix(got[0], "x[redacted: TOKEN]") {
			t.Errorf("%d bytes of the value are searched: got %q", inside, got)
		}
	}
}

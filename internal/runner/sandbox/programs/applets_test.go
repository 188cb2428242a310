package programs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// listing makes a list with a program of that name, and returns its path.
func listing(t *testing.T, name string) (l *List, path string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	return resolving(t, path), path
}

func resolving(t *testing.T, path string) *List {
	t.Helper()
	r := &rules.Rules{WritePaths: []string{}, Programs: &rules.Programs{Allowed: []string{path}}}
	return Resolve(r, nil, "", func(int) {})
}

func said(stdout string, refused ...result.Program) result.Outcome {
	return result.Outcome{Started: true, Reason: result.Completed, Stdout: result.Stream{Head: []byte(stdout)}, Refused: refused}
}

// A program that doesn't show what it does counts as one that runs applets unseen, and is asked again by the next call: it may have
// lacked the time. What it has shown is remembered, until the file changes.
func TestAProgramIsAskedUntilItHasShownWhichKindItIs(t *testing.T) {
	refused := result.Program{Path: "/bin/echo", Count: 1, Rule: result.RuleNotListed}
	nothing := result.Outcome{Started: true, Reason: result.NonZeroExit}
	for name, c := range map[string]struct {
		program string
		answers []result.Outcome
		// asked is how often it is asked, and again by a second call.
		asked, again int
		unheld       bool
	}{
		"a shell that runs one inside":       {"busybox", []result.Outcome{said("x\n" + appletMark + "\n" + scriptEnd + "\n")}, 1, 0, true},
		"a shell that executes all":          {"busybox", []result.Outcome{said(scriptEnd+"\n", refused)}, 1, 0, false},
		"a shell whose PATH has none":        {"busybox", []result.Outcome{said(scriptEnd + "\n")}, 1, 0, false},
		"find alone":                         {"toybox", []result.Outcome{nothing, nothing, nothing, said(appletMark + "\n")}, 4, 0, true},
		"no shell, and all execute":          {"busybox", []result.Outcome{nothing, nothing, said("", refused), said("", refused), said("", refused)}, 5, 0, false},
		"no shell, and env executes":         {"busybox", []result.Outcome{nothing, nothing, nothing, nothing, said("", refused)}, 5, 0, false},
		"a shell that stops in between":      {"busybox", []result.Outcome{said("", refused), nothing, said(appletMark)}, 3, 0, true},
		"the arguments in place of the mark": {"busybox", []result.Outcome{said("echo " + appletMark + "\n"), nothing, nothing, nothing, said("", refused)}, 5, 0, false},
		"nothing":                            {"busybox", []result.Outcome{nothing, nothing, nothing, nothing, nothing}, 5, 5, true},
		"it doesn't end":                     {"busybox", slices.Repeat([]result.Outcome{{Reason: result.TimedOut}}, 5), 5, 5, true},
		"it may not be executed": {"busybox", slices.Repeat([]result.Outcome{
			{Reason: result.CommandNotFound, Refused: result.Programs{refused}},
		}, 5), 5, 5, true},
		"GNU's coreutils":   {"coreutils", []result.Outcome{said("", refused), nothing}, 2, 0, false},
		"uutils' coreutils": {"coreutils", []result.Outcome{nothing, said("", refused)}, 2, 0, false},
		"another program":   {"cat", nil, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, path := listing(t, c.program)
			asked := 0
			ask := func(program string, argv []string) (result.Outcome, error) {
				if asked++; asked > 2*len(c.answers) || program != path || argv[0] != path {
					t.Fatalf("asked %d times: %q of %q", asked, argv, program)
				}
				return c.answers[(asked-1)%len(c.answers)], nil
			}
			for i, want := range []int{c.asked, c.again} {
				if i > 0 {
					l, asked = resolving(t, path), 0
				}
				paths, err := l.AskMultiCall(ask)
				if err != nil {
					t.Fatal(err)
				}
				var isolation result.Isolation
				l.Report(&isolation)
				unheld := slices.Equal(paths, []string{path}) && slices.Equal(isolation.UnheldApplets, result.Paths{path})
				if asked != want || unheld != c.unheld || !unheld && len(paths) > 0 {
					t.Errorf("call %d: asked %d times, unheld %q", i, asked, paths)
				}
			}
			if c.asked == 0 {
				return
			}
			if err := os.Chmod(path, 0o700); err != nil {
				t.Fatal(err)
			}
			asked = 0
			if _, err := resolving(t, path).AskMultiCall(ask); err != nil || asked != c.asked {
				t.Errorf("after a change it was asked %d times, %v", asked, err)
			}
		})
	}
}

func TestWordsForAShellAreQuoted(t *testing.T) {
	t.Parallel()
	if got := quoteWords([]string{"/a b/it's", "$(x)", ";"}); got != `'/a b/it'\''s' '$(x)' ';'` {
		t.Error(got)
	}
}

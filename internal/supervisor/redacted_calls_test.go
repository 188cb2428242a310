package supervisor_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
	"toolcall.dev/operator/internal/supervisor"
)

// redacting gives a call a Secret's value in a variable, which must not leave it.
func redacting(e *supervisor.Executor, a *wire.Assignment) *wire.Assignment {
	ref := wire.EnvRefPrefix + "1"
	e.Environ = append(e.Environ, ref+"=correct-horse-battery")
	a.Environment.Layers = []envresolve.Layer{{Source: envresolve.SourceEnvironment, Vars: []envresolve.Var{{Name: "TOKEN", Ref: ref}}}}
	a.Environment.Known = []envresolve.Known{{Name: "TOKEN", Ref: ref}, {Name: "ABSENT", Ref: wire.EnvRefPrefix + "2"}}
	return a
}

func TestAKnownValueLeavesACallByNoStream(t *testing.T) {
	e := executor(t)
	var live strings.Builder
	e.Stdout = &live
	r := execute(t, e, redacting(e, shell(e, `echo "$TOKEN"; printf %s "$TOKEN" | base64 >&2; test "$TOKEN" = correct-horse-"$(printf battery)" && exit 7`)))
	if string(r.Outcome.Stdout.Head) != "[redacted: TOKEN]\n" || string(r.Outcome.Stderr.Head) != "[redacted: TOKEN]\n" || live.String() != "[redacted: TOKEN]\n" {
		t.Errorf("got %q, %q, and in the log %q", r.Outcome.Stdout.Head, r.Outcome.Stderr.Head, live.String())
	}
	if r.Outcome.ExitCode == nil || *r.Outcome.ExitCode != 7 {
		t.Errorf("the command itself has another value: %+v", r.Outcome)
	}
	want := result.Redactions{{Name: "TOKEN", Stream: result.RedactedStdout, Count: 1}, {Name: "TOKEN", Stream: result.RedactedStderr, Count: 1}}
	if !slices.Equal(r.Outcome.Redactions, want) {
		t.Errorf("redactions: %+v", r.Outcome.Redactions)
	}
}

func TestAKnownValueLeavesACallByNoPathAndNoFileAction(t *testing.T) {
	e := executor(t)
	e.Outputs = supervisor.NewOutputs()
	a := redacting(e, shell(e, `mkdir out; for n in 1 2; do echo x > "out/$TOKEN"; done; printf %s "$TOKEN" > out/plain; exec "./$TOKEN"`))
	a.Collect = &spec.Collect{Globs: []string{"out/*"}, WritePaths: []string{e.WorkingDir}, MaxCount: 10, MaxBytes: 100, MaxTotalBytes: 1000}
	r := execute(t, e, a)
	var paths []string
	for _, kept := range r.Outcome.Artifacts.Kept {
		paths = append(paths, kept.Path)
	}
	if !slices.Equal(paths, []string{"out/[redacted: TOKEN]", "out/plain"}) || strings.Contains(string(r.Outcome.Stderr.Head), "correct-horse") {
		t.Errorf("artifacts %q, stderr %q", paths, r.Outcome.Stderr.Head)
	}
	read := redacting(e, shell(e, ""))
	read.Argv, read.File = nil, &spec.File{Operation: "Read", Path: e.WorkingDir + "/out/plain", Rules: spec.FileRules{ReadPaths: []string{e.WorkingDir}}}
	got := execute(t, e, read)
	if string(got.Outcome.Stdout.Head) != "[redacted: TOKEN]" || len(got.Outcome.Redactions) != 1 {
		t.Errorf("a file action reads %q: %+v", got.Outcome.Stdout.Head, got.Outcome)
	}
	missing := redacting(e, shell(e, ""))
	missing.Argv, missing.File = nil, &spec.File{Operation: "Read", Path: e.WorkingDir + "/correct-horse-battery", Rules: spec.FileRules{ReadPaths: []string{e.WorkingDir}}}
	if got := execute(t, e, missing); strings.Contains(got.Outcome.Message+got.Outcome.File.Path, "correct-horse") || got.Outcome.Reason == result.Completed {
		t.Errorf("a file action says %q", got.Outcome.Message)
	}
}

// What is cut is redacted before: no part of a value is left at the cut.
func TestAFileActionCutsNothingFromAValue(t *testing.T) {
	const value = "correct-horse-battery"
	e := executor(t)
	long := strings.Repeat("a", 120) + "MATCH" + strings.Repeat("b", 370) + value + strings.Repeat("c", 1000)
	if err := os.WriteFile(e.WorkingDir+"/long", []byte(long+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rules := spec.FileRules{ReadPaths: []string{e.WorkingDir}}
	for name, file := range map[string]*spec.File{
		"a long line of a Grep":      {Operation: "Grep", Path: "long", Pattern: "MATCH"},
		"the first bytes of a value": {Operation: "Read", Path: "long", Unit: "Bytes", Limit: 120 + 5 + 370 + 10},
		"the last bytes of a value":  {Operation: "Read", Path: "long", Unit: "Bytes", Offset: 120 + 5 + 370 + 10, Limit: 100},
	} {
		a := redacting(e, shell(e, ""))
		a.Argv, a.File, a.MaxBytesPerStream = nil, file, 1<<16
		file.Rules = rules
		o := execute(t, e, a).Outcome
		got := string(o.Stdout.Head)
		if o.Reason != result.Completed || len(got) < 50 || strings.Contains(got, value[:8]) || strings.Contains(got, value[len(value)-8:]) {
			t.Errorf("%s: %s, %q", name, o.Reason, got)
		}
	}
}

func TestAReadThatGrowsByRedactionKeepsItsBound(t *testing.T) {
	e := executor(t)
	if err := os.WriteFile(e.WorkingDir+"/f", []byte(strings.Repeat("correct-horse-battery\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	a := redacting(e, shell(e, ""))
	a.Environment.Known[0].Name = strings.Repeat("N", 100)
	a.Argv, a.MaxBytesPerStream = nil, 1000
	a.File = &spec.File{Operation: "Read", Path: "f", Rules: spec.FileRules{ReadPaths: []string{e.WorkingDir}}}
	o := execute(t, e, a).Outcome
	lines := int64(strings.Count(string(o.Stdout.Head), "\n"))
	if o.Stdout.Bytes > 1000 || lines < 5 || *o.File.Lines != lines || !o.File.Truncated || *o.File.NextOffset != lines+1 {
		t.Errorf("%d bytes, %d lines: %+v", o.Stdout.Bytes, lines, o.File)
	}
	if want := (result.Redactions{{Name: a.Environment.Known[0].Name, Stream: result.RedactedStdout, Count: lines}}); !slices.Equal(o.Redactions, want) {
		t.Errorf("redactions: %+v", o.Redactions)
	}
}

// The paths have the value at the places where messages could be cut.
func TestAMessageAboutAPathIsRedactedBeforeItIsCut(t *testing.T) {
	const value = "correct-horse-battery"
	for _, before := range []int{1, 9, 17} {
		e := executor(t)
		deep := strings.Repeat("/"+strings.Repeat("a", before)+value, 40)
		for _, dir := range []string{e.WorkingDir, t.TempDir()} {
			if err := os.MkdirAll(dir+deep, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(dir+deep, e.WorkingDir+"/"+map[bool]string{true: "in", false: "out"}[dir == e.WorkingDir]); err != nil {
				t.Fatal(err)
			}
		}
		file := func(path string) *wire.Assignment {
			a := redacting(e, shell(e, ""))
			a.Argv, a.File = nil, &spec.File{Operation: "Read", Path: path, Rules: spec.FileRules{ReadPaths: []string{e.WorkingDir}}}
			return a
		}
		dir := func(path string) *wire.Assignment {
			a := redacting(e, shell(e, ""))
			a.Environment.WorkingDir = path
			return a
		}
		for name, a := range map[string]*wire.Assignment{
			"a directory": file("in"), "a file that isn't there": file("in/no"), "a file by its path": file("." + deep + "/no"),
			"a working directory that isn't there": dir("in/no"), "one outside": dir("out"),
		} {
			o := execute(t, e, a).Outcome
			if o.Reason == result.Completed || strings.Contains(o.Message, "corr") || !strings.Contains(o.Message, "[redacted: TOKEN]") {
				t.Errorf("%s, %d bytes before: %s: %q", name, before, o.Reason, o.Message)
			}
		}
	}
}

func TestAMessageAboutAProgramIsRedactedBeforeItIsCut(t *testing.T) {
	const value = "correct-horse-battery"
	e := executor(t)
	missing := func(program, path string) result.Outcome {
		t.Helper()
		a := redacting(e, shell(e, ""))
		a.Argv = []string{program}
		if path != "" {
			a.Environment.Layers = append(a.Environment.Layers, envresolve.Layer{Source: envresolve.SourceCall, Vars: []envresolve.Var{{Name: "PATH", Value: path}}})
		}
		o := execute(t, e, a).Outcome
		if o.Reason != result.CommandNotFound || strings.Contains(o.Message, value[:3]) || !strings.Contains(o.Message, "[redacted: TOKEN]") {
			t.Fatalf("%s: %q", o.Reason, o.Message)
		}
		return o
	}
	for name, source := range map[string]string{"a name in PATH": "", "a path": "/no/"} {
		for before := 280; before < 300; before++ {
			o := missing(source+strings.Repeat("a", before)+value, "")
			want := result.Redactions{{Name: "TOKEN", Stream: result.RedactedMessage, Count: int64(strings.Count(o.Message, "[redacted: TOKEN]"))}}
			if !slices.Equal(o.Redactions, want) {
				t.Errorf("%s: redactions: %+v, not %+v", name, o.Redactions, want)
			}
		}
	}
	o := missing("no-such-program", "/"+strings.Repeat("a", 990)+value+strings.Repeat("b", 5000))
	if len(o.Message) != result.MaxMessage {
		t.Errorf("%d bytes: %q", len(o.Message), o.Message)
	}
}

// The operator has no values, and what it says of a command shows them. The runner's part of the result doesn't.
func TestAValueInTheCommandItselfIsInNothingThatTheRunnerSays(t *testing.T) {
	const value = "correct-horse-battery"
	for name, argv := range map[string][]string{
		"a program in PATH": {value}, "a program by its path": {"./" + value + "/run"}, "an argument that is printed": {"echo", value},
		"a script that fails": {"sh", "-c", value + "; cd /" + value + "; ./" + value + "; exit 3"},
		"a variable":          {"env", "X=" + value},
	} {
		e := executor(t)
		a := redacting(e, shell(e, ""))
		a.Argv = argv
		r := execute(t, e, a)
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		said := string(raw) + string(r.Outcome.Stdout.Head) + string(r.Outcome.Stderr.Head)
		if strings.Contains(said, value) || !strings.Contains(said, "[redacted: TOKEN]") || len(r.Outcome.Redactions) == 0 {
			t.Errorf("%s: %s", name, said)
		}
	}
}

package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

func TestTheInterpreterOfAScript(t *testing.T) {
	for line, want := range map[string]string{
		"#!/bin/sh\necho":                "/bin/sh",
		"#! \t/bin/sh -e\n":              "/bin/sh",
		"#!/usr/bin/env python3":         "/usr/bin/env",
		"#!\n":                           "",
		"#!":                             "",
		"#!" + strings.Repeat("a", 5000): strings.Repeat("a", 254),
		"#!/bin/sh\r\n":                  "/bin/sh\r",
	} {
		if got := scriptInterpreter([]byte(line)); got != want {
			t.Errorf("%.40q: got %q, want %q", line, got, want)
		}
	}
}

func TestTheLoaderOfThisMachine(t *testing.T) {
	loaders, _ := filepath.Glob("/lib*/ld-linux-*.so.*")
	if len(loaders) == 0 {
		t.Skip("there is no loader of the usual name")
	}
	f, err := openProgram(-1, "/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if got := readInterpreters(f); got != (interpreters{loader: loaders[0]}) {
		t.Errorf("got %+v, want the loader %s", got, loaders[0])
	}
	loader, err := openProgram(-1, loaders[0])
	if err != nil {
		t.Fatal(err)
	}
	defer loader.close()
	if got := readInterpreters(loader); got != (interpreters{isLoader: true}) {
		t.Errorf("the loader itself: got %+v", got)
	}
}

func FuzzInterpreters(f *testing.F) {
	program, err := os.ReadFile("/bin/sh")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(program[:headSize])
	f.Add([]byte("#! /bin/sh -x\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := openProgram(-1, path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.close()
		got := readInterpreters(file)
		if got.isLoader && got.loader != "" || got.script != "" && (got.loader != "" || !strings.Contains(string(content), got.script)) {
			t.Errorf("got %+v", got)
		}
	})
}

func TestAStageIsToldEveryOption(t *testing.T) {
	for _, o := range []filterOptions{{}, {programs: true}, {network: true}, {denyNetwork: true}, {udp: true}, {true, true, true, true, true, true, true}, {traced: true}, {allSockets: true}, {noTruncate: true}} {
		s, err := decodeStart((&start{program: "a", options: o}).encode())
		if err != nil || s.options != o {
			t.Errorf("told %+v, understood %+v: %v", o, s.options, err)
		}
	}
}

func FuzzDecodeStart(f *testing.F) {
	f.Add((&start{program: "/bin/sh", argv: []string{"sh", ""}, env: []string{"A=b"}, files: 4, options: filterOptions{programs: true}}).encode())
	f.Add((&start{program: "a", options: filterOptions{network: true, udp: true}}).encode())
	f.Add((&start{program: "a", options: filterOptions{denyNetwork: true}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeStart(b)
		if err != nil {
			return
		}
		again, err := decodeStart(s.encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, again, cmp.AllowUnexported(start{}, filterOptions{})); diff != "" {
			t.Error(diff)
		}
	})
}

func TestHelpersByNameAndByFile(t *testing.T) {
	own := map[string][]string{"python3": {"/opt/tool"}}
	for name, c := range map[string]struct {
		entry, real string
		want        []string
	}{
		"a version":             {"python3", "/usr/bin/python3.11", []string{"sh", "/opt/tool"}},
		"the file's name":       {"awk", "/usr/bin/mawk", []string{"sh", "sh"}},
		"a prefix of its own":   {"python3.12", "/opt/python/bin/python3.12", []string{"sh", "/opt/python/bin/", "/opt/python/libexec/"}},
		"a triplet":             {"x86_64-linux-gnu-gcc-12", "/usr/bin/x86_64-linux-gnu-gcc-12", compilerHelpers},
		"nothing":               {"ls", "/usr/bin/ls", nil},
		"another program there": {"tool", "/opt/python/bin/tool", nil},
	} {
		if diff := cmp.Diff(c.want, helpersOf(c.entry, c.real, own)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestCountsAreBounded(t *testing.T) {
	var o observed
	for i := range 2 * result.MaxPrograms {
		o.addExecuted("/bin/" + strings.Repeat("x", i))
		o.addRefused(strings.Repeat("é", result.MaxProgramPath)+string(rune('a'+i)), result.RuleNotListed)
		o.addExecuted("/bin/first")
	}
	outcome := result.Outcome{Reason: result.CommandNotFound}
	o.report(&outcome)
	// Paths are whole up to then.
	outcome.Shorten()
	if err := outcome.Validate(); err != nil {
		t.Error(err)
	}
	if len(outcome.Executed) != result.MaxPrograms || outcome.MoreExecuted != result.MaxPrograms+1 || outcome.Executed[1].Count != 2*result.MaxPrograms {
		t.Errorf("executed %+v and %d more", outcome.Executed, outcome.MoreExecuted)
	}
	if len(outcome.Refused) != result.MaxPrograms || outcome.MoreRefused != result.MaxPrograms || !utf8.ValidString(outcome.Refused[0].Path) {
		t.Errorf("refused %+v and %d more", outcome.Refused, outcome.MoreRefused)
	}
}

func TestEachRefusalSaysWhatToDo(t *testing.T) {
	for rule, want := range map[string]string{
		result.RuleNotListed:      `"/usr/bin/curl" was not allowed to run: add it to binaries.allowed of policy "agents".`,
		result.RuleName:           `"/usr/bin/curl" was not allowed to run: add it to binaries.allowed of policy "agents".`,
		result.RuleInterpreter:    `"/usr/bin/curl", the interpreter of a script, was not allowed to run: add it to binaries.allowed of policy "agents".`,
		result.RuleLoader:         `"/usr/bin/curl" was not allowed to run: a loader runs any file, so it can't be started by hand.`,
		result.RuleUnnamed:        `"/usr/bin/curl" was not allowed to run: a program must be a file with a name.`,
		result.RuleChanged:        `"/usr/bin/curl" was not allowed to run: its process executed something else than it had asked for, and was killed.`,
		result.RuleUnreadable:     `"/usr/bin/curl" was not allowed to run a program: its process can't be looked at.`,
		result.RuleUnreadableFile: `"/usr/bin/curl" was not allowed to run: the call's user can't read it, so its process can't be looked at. Make it readable.`,
	} {
		if got := refusalOf(result.Program{Path: "/usr/bin/curl", Rule: rule}, "agents", false); got != want {
			t.Errorf("%s: got %s", rule, got)
		}
	}
}

func TestTheMessageOfACallThatFailedNamesWhatWasRefused(t *testing.T) {
	p := &Process{gate: &gate{}, domain: &Domain{rules: &rules.Rules{Policy: "agents"}}}
	p.gate.observed.addRefused("/usr/bin/curl", result.RuleNotListed)
	for reason, named := range map[string]bool{
		result.NonZeroExit: true, result.Signaled: true, result.TimedOut: true, result.OOMKilled: true,
		result.Completed: false, result.CancelRequested: false, result.CommandNotFound: false,
	} {
		o := result.Outcome{Reason: reason}
		if p.Report(&o); strings.Contains(o.Message, "/usr/bin/curl") != named {
			t.Errorf("%s: the message is %s", reason, o.Message)
		}
	}
}

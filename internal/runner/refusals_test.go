package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// A C library goes on with the next directory of PATH when one is refused.
func TestOneTryCountsOnce(t *testing.T) {
	a := newAttacker(t)
	again := filepath.Join(filepath.Dir(a.bin), "again")
	if err := os.Symlink(a.bin, again); err != nil {
		t.Fatal(err)
	}
	for script, tries := range map[string]int64{"env two": 1, "env two; env two": 2, "two": 1, a.bin + "/two; " + again + "/two": 2} {
		o := superviseApart(t, supervision{
			Argv: []string{"bash", "-c", script}, Dir: "/", NoNewPrivs: true, Env: []string{"PATH=" + a.bin + ":" + again + ":" + testPath},
			Rules: &rules.Rules{WritePaths: []string{a.work}, Programs: &rules.Programs{Allowed: []string{"env"}, Own: "bash"}},
		}, nobody(t)).Outcome
		if diff := cmp.Diff(result.Programs{{Path: a.bin + "/busybox", Count: tries, Rule: result.RuleNotListed}}, o.Refused); diff != "" {
			t.Errorf("%s: %s", script, diff)
		}
	}
}

// The command itself is refused before it runs, or after its first line was read.
func TestARefusedCommandIsInTheStatus(t *testing.T) {
	bin, work := worlds(t)
	needs(t, "perl")
	script := write(t, bin, "script", "#!/usr/bin/perl\nprint \"ran\\n\";\n", 0o755)
	for path, want := range map[string]result.Program{
		script:                     {Path: real(t, "perl"), Count: 1, Rule: result.RuleInterpreter},
		newAttacker(t).loader:      {Path: real2(t, newAttacker(t).loader), Count: 1, Rule: result.RuleLoader},
		real(t, "id"):              {Path: real(t, "id"), Count: 1, Rule: result.RuleNotListed},
		"/proc/self/root" + script: {Path: real(t, "perl"), Count: 1, Rule: result.RuleInterpreter},
	} {
		o := superviseApart(t, supervision{
			Argv: []string{path}, Dir: "/", NoNewPrivs: true,
			Rules: &rules.Rules{Policy: "agents", WritePaths: []string{work}, Programs: &rules.Programs{Allowed: []string{script, "nothing"}}},
		}, nobody(t)).Outcome
		if diff := cmp.Diff(result.Programs{want}, o.Refused); diff != "" || o.Isolation == nil || !o.Isolation.Programs ||
			len(o.Isolation.NotFound) != 1 || o.Reason != result.CommandNotFound || strings.Count(o.Message, "was not allowed to run") != 1 {
			t.Errorf("%s: %s, isolation %+v\n%s", path, diff, o.Isolation, describe(o))
		}
	}
}

// Nobody could look at its process.
func TestAListedProgramThatCannotBeReadSaysSo(t *testing.T) {
	bin, work := worlds(t)
	program := write(t, bin, "unreadable", readFile(t, "/bin/cat"), 0o711)
	script := write(t, bin, "script", "#!"+program+"\n", 0o755)
	for name, allowed := range map[string][]string{"by its path": {program, script}, "in a listed directory": {bin + "/"}} {
		for _, run := range []string{program, script} {
			o := held(t, &rules.Rules{Policy: "agents", WritePaths: []string{work}, Programs: &rules.Programs{Allowed: allowed}}, run+" /dev/null; exit 1")
			want := result.Programs{{Path: program, Count: 1, Rule: result.RuleUnreadableFile}}
			if diff := cmp.Diff(want, o.Refused); diff != "" || !strings.Contains(o.Message, "can't read it") {
				t.Errorf("%s, %s: %s\n%s", name, run, diff, describe(o))
			}
		}
	}
}

func TestACallThatTimesOutNamesWhatWasRefused(t *testing.T) {
	_, work := worlds(t)
	o := superviseApart(t, supervision{
		Argv: []string{"bash", "-c", "until id; do sleep 0.1; done"}, Dir: "/", NoNewPrivs: true, Timeout: time.Second, Grace: time.Second,
		Rules: &rules.Rules{Policy: "agents", WritePaths: []string{work}, Programs: &rules.Programs{Allowed: []string{"sleep"}, Own: "bash"}},
	}, nobody(t)).Outcome
	if o.Reason != result.TimedOut || !strings.Contains(o.Message, real(t, "id")+`" was not allowed to run: add it`) {
		t.Error(describe(o))
	}
}

// What the message says to do is enough.
func TestTheMessageSaysWhatAWritableProgramNeeds(t *testing.T) {
	_, work := worlds(t)
	tool := write(t, work, "tool", "#!/bin/bash\necho ran\n", 0o755)
	script := write(t, work, "script", "#!"+tool+"\n", 0o755)
	const needs = ` was not allowed to run: the call can write to it. Put it where calls can't write, or add its path to ` +
		`binaries.allowed of policy "agents" and set binaries.allowWritable.`
	for name, c := range map[string]struct {
		programs rules.Programs
		run      string
		message  string
	}{
		"not listed":         {rules.Programs{Allowed: []string{"ls"}}, tool, tool + `"` + needs},
		"listed":             {rules.Programs{Allowed: []string{tool}}, tool, tool + `"` + needs},
		"by its directory":   {rules.Programs{Allowed: []string{work + "/"}}, tool, tool + `"` + needs},
		"removed":            {rules.Programs{Allowed: []string{"rm"}}, tool + "; rm " + tool, tool + `"` + needs},
		"an interpreter":     {rules.Programs{Allowed: []string{"ls", script}, AllowWritable: true}, script, tool + `", the interpreter of a script, was not allowed to run: add it to binaries.allowed of policy "agents".`},
		"with allowWritable": {rules.Programs{Allowed: []string{"ls"}, AllowWritable: true}, tool, tool + `" was not allowed to run: add it to binaries.allowed of policy "agents".`},
		"with both":          {rules.Programs{Allowed: []string{tool}, AllowWritable: true}, tool, "The command exited with code 1."},
	} {
		for paths, writePaths := range map[string][]string{"with paths": {work}, "without paths": nil} {
			write(t, work, "tool", "#!/bin/bash\necho ran\n", 0o755)
			o := held(t, &rules.Rules{Policy: "agents", WritePaths: writePaths, Programs: &c.programs}, "("+c.run+"); exit 1")
			if !strings.HasSuffix(o.Message, c.message) {
				t.Errorf("%s, %s: %s", name, paths, o.Message)
			}
		}
	}
}

func TestTheMessageSaysHowManyWereRefused(t *testing.T) {
	_, work := worlds(t)
	for script, want := range map[string]string{
		"id; false":                          `id" was not allowed to run: add it to binaries.allowed of policy "agents".`,
		"id; id; false":                      `id" was not allowed to run: add it to binaries.allowed of policy "agents".`,
		"uname; id; false":                   `id" was not allowed to run: add it to binaries.allowed of policy "agents". 1 other program was refused too: "` + real(t, "uname") + `".`,
		"uname; date; uname; id; id; false ": `id" was not allowed to run: add it to binaries.allowed of policy "agents". 2 other programs were refused too: "` + real(t, "uname") + `" and "` + real(t, "date") + `".`,
		"for i in {1..140}; do printf '#!/bin/id\n' > " + work + "/$i; chmod 755 " + work + "/$i; " + work + "/$i; done; id; false": `id" was not allowed to run: add it to binaries.allowed of policy "agents". At least 128 other programs were refused too, "` + work + `/1" and "` + work + `/2" among them: see status.refused.`,
	} {
		o := held(t, &rules.Rules{Policy: "agents", WritePaths: []string{work}, Programs: &rules.Programs{Allowed: []string{"chmod"}}}, script)
		if !strings.HasSuffix(o.Message, want) {
			t.Errorf("%s: %s", script, o.Message)
		}
		// So it does when the call succeeds: a model reads that text alone.
		o = held(t, &rules.Rules{Policy: "agents", WritePaths: []string{work}, Programs: &rules.Programs{Allowed: []string{"chmod"}}}, script+"; true")
		if o.Reason != result.Completed || strings.Contains(o.Message, "refused") || !strings.HasSuffix(o.Refusal, want) {
			t.Errorf("%s; true: %s", script, o.Refusal)
		}
	}
}

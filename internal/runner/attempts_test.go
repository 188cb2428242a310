package runner

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/testing/attempts"
)

// generatedScripts are enough to make each kind of attempt, and run within seconds.
const generatedScripts = 150

// vectorScripts are the scripts of the guards' test data, each with a repository where it needs one.
func vectorScripts(t testing.TB, name string) []attempt {
	t.Helper()
	var file struct {
		Cases []struct {
			Spec struct {
				Shell *struct{ Command string }
				Env   []struct{ Name, Value string }
			}
		}
	}
	data, err := os.ReadFile(filepath.Join("../guards/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	var all []attempt
	for _, c := range file.Cases {
		if c.Spec.Shell == nil {
			continue
		}
		a := attempt{Script: c.Spec.Shell.Command}
		if strings.Contains(a.Script, "git ") {
			a.Script = "git init -q . && git add f && git -c user.name=a -c user.email=a@example.com commit -qm a; echo z >> f\n" + a.Script
		}
		for _, v := range c.Spec.Env {
			a.Env = append(a.Env, v.Name+"="+v.Value)
		}
		all = append(all, a)
	}
	return all
}

// check runs a script with the list in force, and fails when something else ran.
func (w *attemptsWorld) check(t testing.TB, a attempt) attemptResult {
	t.Helper()
	a.Held = true
	r := w.attempt(t, a)
	if len(r.Ran) > 0 {
		t.Errorf("unlisted programs ran: %q\n%s\n%q", r.Ran, a.Script, a.Env)
	}
	if r.Outcome.Isolation == nil || !r.Outcome.Isolation.Programs {
		t.Errorf("nothing holds the programs: %s", describe(r.Outcome))
	}
	for _, p := range r.Outcome.Executed {
		if name := filepath.Base(p.Path); !w.isListed(name) {
			t.Errorf("%s was executed\n%s", p.Path, a.Script)
		}
	}
	return r
}

// isListed says that a program is listed or a helper of one that is.
func (w *attemptsWorld) isListed(name string) bool {
	return name == filepath.Base(w.Copyable) || slices.Contains(attempts.Listed, name) || slices.Contains(helperPrograms, name) ||
		slices.Contains([]string{"dash", "mawk", "gawk"}, name) || strings.HasPrefix(name, "git-")
}

// The same scripts, with the list and without. What runs says itself that it does.
func TestScriptsRunNothingUnlisted(t *testing.T) {
	w := newAttemptsWorld(t)
	bypasses := vectorScripts(t, "bypass.json")
	scripts := slices.Concat(bypasses, vectorScripts(t, "guards.json"))
	for _, picks := range attempts.Picks(1, generatedScripts) {
		scripts = append(scripts, attempt{Script: w.Script(picks)})
	}
	free, refused := 0, 0
	for _, a := range scripts {
		if r := w.attempt(t, a); len(r.Ran) > 0 {
			free++
		}
		if r := w.check(t, a); len(r.Outcome.Refused) > 0 {
			refused++
		}
	}
	t.Logf("of %d scripts %d run unlisted programs without the list; with it %d are refused one", len(scripts), free, refused)
	if free < len(scripts)/3 {
		t.Errorf("only %d of %d scripts try anything", free, len(scripts))
	}
}

// A listed program that is copied isn't listed: the mark tells the two apart.
func TestTheMarkKnowsWhereItRuns(t *testing.T) {
	w := newAttemptsWorld(t)
	if r := w.check(t, attempt{Script: w.Copyable}); r.Outcome.Reason != result.Completed {
		t.Error(describe(r.Outcome))
	}
	for _, script := range []string{"id", "cp " + w.Copyable + " c; ./c", w.Loader + " " + w.Copyable, "script", "/usr/local/bin/id"} {
		if r := w.attempt(t, attempt{Script: script}); len(r.Ran) != 1 {
			t.Errorf("%s: %q\n%s", script, r.Ran, describe(r.Outcome))
		}
	}
}

// FuzzUnlisted changes scripts letter by letter.
func FuzzUnlisted(f *testing.F) {
	w := newAttemptsWorld(f)
	for _, a := range slices.Concat(vectorScripts(f, "bypass.json"), vectorScripts(f, "guards.json")) {
		f.Add(a.Script)
	}
	f.Fuzz(func(t *testing.T, script string) {
		if len(script) > 4096 || strings.Contains(script, "\x00") {
			return
		}
		w.check(t, attempt{Script: script})
	})
}

// FuzzUnlistedGrammar changes what scripts are made of, choice by choice.
func FuzzUnlistedGrammar(f *testing.F) {
	w := newAttemptsWorld(f)
	for _, picks := range attempts.Picks(2, 20) {
		f.Add(picks)
	}
	f.Fuzz(func(t *testing.T, picks []byte) {
		w.check(t, attempt{Script: w.Script(picks)})
	})
}

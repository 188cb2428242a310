package supervisor_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/supervisor"
)

// snippet is a call with code in a language, for a program.
func snippet(e *supervisor.Executor, language, source string, argv ...string) *wire.Assignment {
	a := shell(e, "")
	a.Argv, a.Source, a.HasSource, a.Language = argv, []byte(source), true, language
	return a
}

// writeModules puts modules into the call's directory.
func writeModules(t *testing.T, e *supervisor.Executor, modules map[string]string) {
	t.Helper()
	for name, content := range modules {
		if err := os.WriteFile(filepath.Join(e.WorkingDir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASnippetIsAFileOfItsCall(t *testing.T) {
	tmp, e := temporary(t), executor(t)
	writeModules(t, e, map[string]string{
		"helper_mod.py": "def f():\n    return 41 + 1\n", "helper.js": "exports.f = () => 42\n", "helper.rb": "def f; 42; end\n",
		"Helper.pm": "package Helper; sub f { 42 } 1;\n", "helper.sh": "echo 42\n",
	})
	for name, c := range map[string]struct{ language, program, source, want string }{
		"python": {"python", "python3", `import pathlib, subprocess, sys
import helper_mod
p = pathlib.Path(__file__)
print(p.is_file(), p.suffix, helper_mod.f())
print(subprocess.run([sys.executable, '-c', 'print(len(open(__import__("sys").argv[1]).read()) > 10)', str(p)], capture_output=True, text=True).stdout.strip())`, "True .py 42\nTrue\n"},
		"worker processes": {"python", "python3", `import multiprocessing as mp
def f(x):
    return x * x
if __name__ == '__main__':
    with mp.get_context('spawn').Pool(2) as p:
        print(p.map(f, [1, 2, 3]))`, "[1, 4, 9]\n"},
		"an error": {"python", "python3", "try:\n  1/0\nexcept ZeroDivisionError as e:\n  print(e.__traceback__.tb_frame.f_code.co_filename == __file__)", "True\n"},
		"bash":     {"bash", "bash", `. ./helper.sh; test -f "$0" && echo "${0##*.}"; cat`, "42\nsh\nin"},
		"sh":       {"sh", "sh", ``, ""},
		"node":     {"javascript", "node", `console.log(require('./helper.js').f(), require('helper').f(), require('path').extname(__filename))`, "42 42 .js\n"},
		"ruby":     {"ruby", "ruby", "require 'helper'\nrequire_relative 'helper'\nputs f, File.extname(__FILE__)", "42\n.rb\n"},
		"perl":     {"perl", "perl", `use Helper; print Helper::f(), " ", -f $0, "\n"`, "42 1\n"},
		"another":  {"awk", "awk -f", "{ print \"got\", $0 }", "got in\n"},
	} {
		for held, restrict := range map[string]*rules.Rules{
			"": nil, ", held": {ReadPaths: []string{e.WorkingDir}, WritePaths: []string{e.WorkingDir, "/dev/shm"}},
		} {
			t.Run(name+held, func(t *testing.T) {
				argv := strings.Fields(c.program)
				if _, err := exec.LookPath(argv[0]); err != nil {
					t.Skipf("%s isn't installed", c.program)
				}
				a := snippet(e, c.language, c.source, argv...)
				a.Stdin, a.Rules = []byte("in"), restrict
				r := execute(t, e, a)
				if got := string(r.Outcome.Stdout.Head); r.Outcome.Reason != result.Completed || got != c.want {
					t.Errorf("%s, %q, %s", r.Outcome.Message, got, r.Outcome.Stderr.Head)
				}
				if len(a.Argv) != len(argv) {
					t.Error("the assignment was changed")
				}
			})
		}
	}
	wantNoFilesLeft(t, tmp)
}

// The private files lie elsewhere, so that what is above the directory isn't above them.
func TestASnippetFindsThePackagesAboveItsDirectory(t *testing.T) {
	temporary(t)
	e := executor(t)
	if err := errors.Join(os.MkdirAll(e.WorkingDir+"/node_modules/pack", 0o700), os.MkdirAll(e.WorkingDir+"/a/b", 0o700),
		os.WriteFile(e.WorkingDir+"/node_modules/pack/index.js", []byte("42\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	e.WorkingDir += "/a/b"
	for _, language := range []string{"javascript", "js", "node", "ts"} {
		a := snippet(e, language, "", "sh", "-c", `cat "${0%/*}/node_modules/pack/index.js"`)
		if r := execute(t, e, a); string(r.Outcome.Stdout.Head) != "42\n" {
			t.Errorf("%s: %q, %s", language, r.Outcome.Stdout.Head, r.Outcome.Stderr.Head)
		}
	}
}

func TestASnippetFindsThePackagesThatItInstalls(t *testing.T) {
	temporary(t)
	e := executor(t)
	const install = `mkdir -p node_modules/pack && echo 42 > node_modules/pack/index.js && cat "${0%/*}/node_modules/pack/index.js"`
	if r := execute(t, e, snippet(e, "javascript", "", "sh", "-c", install)); string(r.Outcome.Stdout.Head) != "42\n" {
		t.Errorf("%q, %s", r.Outcome.Stdout.Head, r.Outcome.Stderr.Head)
	}
}

func TestTheFileOfASnippetHasTheSuffixOfItsLanguage(t *testing.T) {
	temporary(t)
	e := executor(t)
	for language, want := range map[string]string{
		"go": "go", "java": "java", "php": "php", "r": "R", "lua": "lua", "rust": "rs", "kotlin": "kts", "python3": "py", "ts": "ts",
	} {
		r := execute(t, e, snippet(e, language, "", "sh", "-c", `echo "${0##*.}"`))
		if string(r.Outcome.Stdout.Head) != want+"\n" {
			t.Errorf("%s: %q, %s", language, r.Outcome.Stdout.Head, r.Outcome.Stderr.Head)
		}
	}
}

// A command of the session may put anything in the directory's place.
func TestWhatIsBesideASnippetIsOfTheDirectoryThatWasLookedUp(t *testing.T) {
	tmp := temporary(t)
	where := tmp + "/dir"
	if err := errors.Join(os.Mkdir(where, 0o700), os.WriteFile(where+"/module.js", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	dir, err := os.OpenFile(where, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := errors.Join(os.Rename(where, where+"-moved"), unix.Mkfifo(where, 0o600)); err != nil {
		t.Fatal(err)
	}
	if names, err := supervisor.LinkedFrom(dir); err != nil || !slices.Equal(names, []string{"module.js", "node_modules"}) {
		t.Errorf("%q, %v", names, err)
	}
}

func TestTheImportsThatAnEnvironmentSetsComeAfterTheDirectory(t *testing.T) {
	temporary(t)
	e := executor(t)
	a := snippet(e, "python", `import os; print(os.environ["PYTHONPATH"])`, "python3")
	a.Environment.Layers = []envresolve.Layer{{Source: envresolve.SourceEnvironment, Vars: []envresolve.Var{{Name: "PYTHONPATH", Value: "/opt/modules"}}}}
	if got := string(execute(t, e, a).Outcome.Stdout.Head); got != e.WorkingDir+":/opt/modules\n" {
		t.Errorf("got %q", got)
	}
}

// A call without variables of its own is trusted. That lets layers set blocked variables, and not the runner.
func TestNoVariableForImportsIsSetThatIsBlocked(t *testing.T) {
	temporary(t)
	e := executor(t)
	a := snippet(e, "python", "", "sh", "-c", `echo "${PYTHONPATH-none}"`)
	a.Environment.Trusted, a.Environment.Blocklist = true, []string{"PYTHON"}
	if got := string(execute(t, e, a).Outcome.Stdout.Head); got != "none\n" {
		t.Errorf("got %q", got)
	}
}

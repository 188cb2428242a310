package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// busybox is the machine's, in a directory of its own, with its names as links. Debian has one that executes its applets, and
// one that runs them inside (busybox-static).
func busybox(t *testing.T) (bin, work string, runsInside bool) {
	t.Helper()
	needs(t, "busybox")
	bin, work = worlds(t)
	content, err := os.ReadFile(real(t, "busybox"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, bin, "busybox", string(content), 0o755)
	for _, name := range []string{"id", "cat", "echo", "env", "xargs", "find", "awk", "sh", "ash", "tac", "setpriv"} {
		if err := os.Symlink("busybox", filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, work, "script", "#!"+bin+"/tac\nuid=\n", 0o755)
	write(t, work, "script-argument", "#!"+bin+"/busybox tac\nuid=\n", 0o755)
	// Nothing is in its PATH.
	out, _ := (&exec.Cmd{Path: filepath.Join(bin, "busybox"), Args: []string{"sh", "-c", "id"}, Env: []string{"PATH=" + work}}).Output()
	return bin, work, strings.Contains(string(out), "uid=")
}

// Each runs busybox's id or tac without rules. With them only some of its names are listed, and those aren't; sh is a helper
// of awk. A busybox that runs its applets inside isn't started at all.
func TestBusyboxIsOnlyWhatIsListed(t *testing.T) {
	bin, work, runsInside := busybox(t)
	listed := []string{"cat", "echo", "env", "xargs", "find", "awk"}
	run := func(script string, r *rules.Rules) result.Outcome {
		return superviseApart(t, supervision{
			Argv: []string{"bash", "-c", "cd " + work + "; " + script}, Dir: "/", NoNewPrivs: true, Env: []string{"PATH=" + bin + ":" + testPath}, Rules: r,
		}, nobody(t)).Outcome
	}
	for _, script := range []string{
		"id", bin + "/id", "busybox id", bin + "/busybox id", "busybox busybox id", "(exec -a id cat)", "(exec -a busybox cat id)", "(exec -a /x/id cat)",
		"(exec -a -id cat)", "(exec -a busybox.x cat id)", "(exec -a /x/busybox cat id)", "(exec -a busybox cat busybox id)", "env id", "env busybox id",
		"echo x | xargs -I@ id", "find . -maxdepth 0 -exec id \\;", "find . -maxdepth 0 -exec busybox id \\;", "awk 'BEGIN { system(\"id\") }'",
		"sh -c id", "busybox sh -c id", "busybox ash -c id", "./script", "./script-argument", "busybox setpriv id", "busybox env id", "PATH= " + bin + "/busybox id",
	} {
		if o := run(script, nil); !strings.Contains(text(o.Stdout), "uid=") {
			t.Errorf("%s: without rules nothing runs: %s", script, describe(o))
		}
		o := run(script, &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: listed, Own: "bash"}})
		if runsInside {
			expectUnheld(t, script, o, bin+"/busybox")
			continue
		}
		if strings.Contains(text(o.Stdout), "uid=") || len(o.Refused) == 0 {
			t.Errorf("%s: refused %+v\n%s", script, o.Refused, describe(o))
		}
		for _, p := range o.Executed {
			if name := filepath.Base(p.Path); name != "bash" && !slices.Contains(listed, name) && name != "sh" && name != "dash" {
				t.Errorf("%s: %s was executed", script, p.Path)
			}
		}
	}
	if runsInside {
		return
	}
	o := run("echo a | cat; env echo b; find . -name script; echo c | xargs echo", &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: listed, Own: "bash"}})
	if text(o.Stdout) != "a\nb\n./script\nc\n" || !slices.Equal(o.Isolation.NamesOnly, result.Paths{bin + "/busybox"}) || len(o.Isolation.UnheldApplets) > 0 {
		t.Errorf("%s\n%+v", describe(o), o.Isolation)
	}
}

// Names are looked at where it matters: not where a policy lists all of them, and not where they are of one program.
func TestHardLinksOfOneProgram(t *testing.T) {
	for name, c := range map[string]struct {
		names, allowed []string
		stdout         string
		namesOnly      bool
	}{
		"some are listed":   {[]string{"one", "two"}, []string{"one"}, "I am one\n", true},
		"all are listed":    {[]string{"one", "two"}, []string{"one", "two"}, "I am one\nI am two\n", false},
		"versions":          {[]string{"one", "one5.36.0"}, []string{"one"}, "I am one\nI am one5.36.0\n", false},
		"a name in a table": {[]string{"bzip2", "bzcat"}, []string{"bzip2"}, "I am bzip2\nI am bzcat\n", false},
		"a multi-call name": {[]string{"busybox-one", "two"}, []string{"busybox-one", "two"}, "I am busybox-one\nI am two\n", true},
	} {
		bin, work := worlds(t)
		file := filepath.Join(bin, c.names[0])
		compile(t, file, multiCall)
		if err := os.Link(file, filepath.Join(bin, c.names[1])); err != nil {
			t.Fatal(err)
		}
		o := superviseApart(t, supervision{
			Argv: []string{"bash", "-c", strings.Join(c.names, "; ")}, Dir: "/", NoNewPrivs: true, Env: []string{"PATH=" + bin + ":" + testPath},
			Rules: &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: c.allowed, Own: "bash", AllowMultiCall: true}},
		}, nobody(t)).Outcome
		// Helpers that another directory of PATH has may be told apart by name as well.
		if text(o.Stdout) != c.stdout || slices.Contains(o.Isolation.NamesOnly, file) != c.namesOnly {
			t.Errorf("%s: names only %q, %s", name, o.Isolation.NamesOnly, describe(o))
		}
	}
}

// likeCoreutils are two programs in one, which don't know what they are called and then look at their first argument:
// as GNU's single binary does with argv[0], as uutils' newest does with the path that was executed, and as others of uutils do, for which
// "rm/" is rm.
const likeCoreutils = `
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
static const char *last(const char *s) { return strrchr(s, '/') ? strrchr(s, '/') + 1 : s; }
static int known(const char *s) { return !strcmp(s, "ls") || !strcmp(s, "rm"); }
static const char *first(char **argv) {
	if (!argv[1]) return "nothing";
	return argv[1] + (strncmp(argv[1], "--coreutils-prog=", 17) ? 0 : 17);
}
int main(int argc, char **argv) {
	const char *called = last(argv[0]), *path = (char *)getauxval(AT_EXECFN);
	printf("I am %s\n", known(called) ? called : first(argv));
	for (char *end = argv[0] + strlen(argv[0]); end > argv[0] && end[-1] == '/';) *--end = 0;
	printf("I am %s\n", known(last(argv[0])) ? last(argv[0]) : first(argv));
	if (strncmp(path, "/proc/", 6)) printf("I am %s\n", known(last(path)) ? last(path) : first(argv));
	return 0;
}`

// The name of the shell is listed for the shell, and another file's name for that file.
func TestAnotherProgramsNameIsNoPassForAMultiCallProgram(t *testing.T) {
	bin, work := worlds(t)
	coreutils := filepath.Join(bin, "coreutils")
	compile(t, coreutils, likeCoreutils)
	for _, name := range []string{"ls", "rm", "mv"} {
		if err := os.Symlink("coreutils", filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	other := filepath.Join(bin, "other")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	listed := []string{"ls", write(t, other, "rm", "#!/bin/bash\n", 0o755), write(t, other, "mv", "#!/bin/bash\n", 0o755)}
	run := func(script string, r *rules.Rules) result.Outcome {
		return superviseApart(t, supervision{
			Argv: []string{"bash", "-c", "cd " + bin + "; " + script}, Dir: "/", NoNewPrivs: true, Env: []string{"PATH=" + bin + ":" + testPath}, Rules: r,
		}, nobody(t)).Outcome
	}
	allowed := func() *rules.Rules {
		return &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: listed, Own: "bash", AllowMultiCall: true}}
	}
	for _, script := range []string{
		"(exec -a bash ls rm)", "(exec -a bash ls --coreutils-prog=rm)", "(exec -a rm ls)", "rm", "(exec -a mv ls rm)", "(exec -a x/ ls rm)",
		"(exec -a ls/ ls rm)", "(exec -a -ls ls rm)", "(exec -a -bash ls rm)", "(exec -a '' ls rm)", "(exec -a ls rm)", "(exec -a ls coreutils rm)",
		"(exec -a ls mv rm)", "(exec -a coreutils ls rm)", "(exec -a ls ./coreutils rm)", "(exec -a coreutils /proc/self/root" + bin + "/ls rm)",
		"(exec -a rm/ ls ls)", "(exec -a rm// /proc/self/root" + bin + "/ls ls)",
	} {
		if o := run(script, nil); !strings.Contains(text(o.Stdout), "I am rm\n") {
			t.Errorf("%s: without rules it isn't rm: %s", script, describe(o))
		}
		if o := run(script, allowed()); text(o.Stdout) != "" || len(o.Refused) != 1 || o.Refused[0].Rule != result.RuleName {
			t.Errorf("%s: %s\nexecuted %+v, refused %+v", script, describe(o), o.Executed, o.Refused)
		}
	}
	for _, script := range []string{"ls", "ls rm", "(exec -a /x/ls ls)", "coreutils ls", "(exec -a ls coreutils ls)"} {
		o := run(script, allowed())
		if text(o.Stdout) != "I am ls\nI am ls\nI am ls\n" || len(o.Refused) > 0 {
			t.Errorf("%s: %s\nrefused %+v", script, describe(o), o.Refused)
		}
	}
}

// A script runs the multi-call program of its first line by the name that is there. Its own path is no name of the program.
func TestAScriptRunsAMultiCallProgramByAListedNameInEveryWay(t *testing.T) {
	bin, _ := worlds(t)
	compile(t, filepath.Join(bin, "coreutils"), likeCoreutils)
	for _, name := range []string{"ls", "rm"} {
		if err := os.Symlink("coreutils", filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	lists, removes := write(t, bin, "lists", "#!"+bin+"/ls\n", 0o755), write(t, bin, "removes", "#!"+bin+"/rm\n", 0o755)
	programs := &rules.Programs{Allowed: []string{bin + "/ls", lists, removes}, AllowWritable: true, AllowMultiCall: true}
	inEveryWay(t, &rules.Rules{Programs: programs}, func(t *testing.T, w rules.Way) {
		o := held(t, &rules.Rules{Programs: programs}, lists+"; "+removes+" || echo refused")
		stdout := "I am ls\nI am ls\nI am " + lists + "\nrefused\n"
		want{reason: result.Completed, exit: result.Exit(0), stdout: &stdout}.check(t, o)
		rule := result.RuleInterpreter
		if w.Name() == rules.WayTrace {
			rule = result.RuleName
		}
		refused := result.Programs{{Path: bin + "/rm", Count: 1, Rule: rule}}
		if diff := cmp.Diff(refused, o.Refused); diff != "" || o.Isolation.Way != w.Name() {
			t.Errorf("%+v: %s", o.Isolation, diff)
		}
		for _, path := range []string{lists, bin + "/ls"} {
			if !slices.ContainsFunc(o.Executed, func(p result.Program) bool { return p.Path == path }) {
				t.Errorf("%s isn't among %+v", path, o.Executed)
			}
		}
	})
}

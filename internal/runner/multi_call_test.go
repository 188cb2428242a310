package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// busybox is Debian's, in a directory of its own, with its names as links.
func busybox(t *testing.T) (bin, work string) {
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
	return bin, work
}

// Each runs busybox's id or tac without rules. With them only some of its names are listed, and those aren't; sh is a helper
// of awk.
func TestBusyboxIsOnlyWhatIsListed(t *testing.T) {
	bin, work := busybox(t)
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
		if strings.Contains(text(o.Stdout), "uid=") || len(o.Refused) == 0 {
			t.Errorf("%s: refused %+v\n%s", script, o.Refused, describe(o))
		}
		for _, p := range o.Executed {
			if name := filepath.Base(p.Path); name != "bash" && !slices.Contains(listed, name) && name != "sh" && name != "dash" {
				t.Errorf("%s: %s was executed", script, p.Path)
			}
		}
	}
	o := run("echo a | cat; env echo b; find . -name script; echo c | xargs echo", &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: listed, Own: "bash"}})
	if text(o.Stdout) != "a\nb\n./script\nc\n" || !slices.Equal(o.Isolation.NamesOnly, result.Paths{bin + "/busybox"}) {
		t.Errorf("%s\n%+v", describe(o), o.Isolation)
	}
}

// Names are looked at where it matters: not where a policy lists all of them, and not where they are of one program.
func TestHardLinksOfOneProgram(t *testing.T) {
	needs(t, "gcc")
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
		source := write(t, work, "multi.c", multiCall, 0o644)
		file := filepath.Join(bin, c.names[0])
		if out, err := exec.Command("gcc", "-o", file, source).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := os.Link(file, filepath.Join(bin, c.names[1])); err != nil {
			t.Fatal(err)
		}
		o := superviseApart(t, supervision{
			Argv: []string{"bash", "-c", strings.Join(c.names, "; ")}, Dir: "/", NoNewPrivs: true, Env: []string{"PATH=" + bin + ":" + testPath},
			Rules: &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: c.allowed, Own: "bash"}},
		}, nobody(t)).Outcome
		if text(o.Stdout) != c.stdout || (len(o.Isolation.NamesOnly) > 0) != c.namesOnly {
			t.Errorf("%s: names only %q, %s", name, o.Isolation.NamesOnly, describe(o))
		}
		if c.namesOnly && !slices.Equal(o.Isolation.NamesOnly, result.Paths{file}) {
			t.Errorf("%s: names only %q", name, o.Isolation.NamesOnly)
		}
	}
}

package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// applets are a busybox in small: a shell without quoting, xargs, find and env, which start the first program that they are
// given, and id. INSIDE is a list of those that run it in their own process if it is an applet; the others execute it.
const applets = `
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>
#include <sys/wait.h>
static int applet(char **argv);
static char *last(char *s) { return strrchr(s, '/') ? strrchr(s, '/') + 1 : s; }
static int known(const char *name) { return strstr(" id echo basename dirname expr ", name) != NULL; }
static int inside(const char *name) { return strstr(" " INSIDE " ", name) != NULL; }
static int start(const char *starter, char **argv) {
	int status = 0;
	fflush(stdout);
	if (!argv[0]) return 0;
	if (known(argv[0]) && inside(starter)) return applet(argv);
	if (!fork()) {
		execvp(argv[0], argv);
		_exit(126);
	}
	wait(&status);
	return status != 0;
}
static int shell(char *script) {
	char *line, *word, *rest;
	while ((line = strsep(&script, ";\n"))) {
		char *argv[32] = {0};
		int n = 0;
		for (rest = line; (word = strsep(&rest, " ")) && n < 30;) {
			if (*word == '\'') word++, word[strlen(word) - 1] = 0;
			if (*word && *word != '<') argv[n++] = word;
		}
		if (n && !strcmp(argv[0], "echo")) applet(argv);
		else start("sh", argv);
	}
	return 0;
}
static int applet(char **argv) {
	char *name = last(argv[0]);
	if (!strncmp(name, "busybox", 7)) return argv[1] ? applet(argv + 1) : 0;
	if (!strcmp(name, "sh")) return shell(argv[2]);
	if (!strcmp(name, "xargs") || !strcmp(name, "env")) return start(name, argv + 1);
	if (!strcmp(name, "find")) {
		while (*argv && strcmp(*argv, "-exec")) argv++;
		if (!*argv) return 0;
		for (char **end = argv; *end; end++) if (!strcmp(*end, ";")) *end = NULL;
		return start(name, argv + 1);
	}
	if (!strcmp(name, "id")) printf("uid=\n");
	else if (!strcmp(name, "dirname")) *strrchr(argv[1], '/') = 0, puts(argv[1]);
	else if (!strcmp(name, "basename")) puts(last(argv[1]));
	else if (!strcmp(name, "echo") || !strcmp(name, "expr")) puts(argv[1] ? argv[1] : "");
	else return fprintf(stderr, "%s: applet not found\n", name), 127;
	fflush(stdout);
	return 0;
}
int main(int argc, char **argv) {
	HOSTILE
	return applet(argv);
}`

// appletsIn makes such a program, with links of its names.
func appletsIn(t *testing.T, bin, inside, hostile string) string {
	t.Helper()
	file := filepath.Join(bin, "busybox")
	compile(t, file, applets, `-DINSIDE="`+inside+`"`, "-DHOSTILE="+hostile)
	for _, name := range []string{"id", "sh", "xargs", "find", "env", "echo"} {
		if err := os.Symlink("busybox", filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

func expectUnheld(t *testing.T, what string, o result.Outcome, program string) {
	t.Helper()
	if o.Started || o.Reason != result.IsolationUnavailable || !strings.Contains(o.Message, program) || !strings.Contains(o.Message, "binaries.multiCall") {
		t.Errorf("%s: %s", what, describe(o))
	}
	if o.Isolation == nil || !o.Isolation.Programs || !slices.Equal(o.Isolation.UnheldApplets, result.Paths{program}) {
		t.Errorf("%s: isolation is %+v", what, o.Isolation)
	}
	if err := o.Validate(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// The lists have what starts id, and not id.
func TestAProgramThatRunsItsAppletsUnseenIsRefusedOrAllowedWhole(t *testing.T) {
	for name, c := range map[string]struct{ inside, script string }{
		"a shell":      {"sh", "sh -c id"},
		"xargs":        {"xargs", "xargs id </dev/null"},
		"find":         {"find", `find /dev/null -exec id \;`},
		"env":          {"env", "env id"},
		"all":          {"sh xargs find env", "xargs sh -c id </dev/null"},
		"its own name": {"sh", "busybox sh -c id"},
	} {
		t.Run(name, func(t *testing.T) {
			bin, work := worlds(t)
			file := appletsIn(t, bin, c.inside, "")
			run := func(allow bool) result.Outcome {
				return superviseApart(t, supervision{
					Argv: []string{"bash", "-c", c.script}, Dir: "/", NoNewPrivs: true, Env: []string{"PATH=" + bin + ":" + testPath},
					Rules: &rules.Rules{Policy: "agents", WritePaths: []string{work}, Programs: &rules.Programs{
						Allowed: []string{"sh", "xargs", "find", "env"}, Own: "bash", AllowMultiCall: allow,
					}},
				}, nobody(t)).Outcome
			}
			expectUnheld(t, "denied", run(false), file)
			o := run(true)
			if text(o.Stdout) != "uid=\n" || len(o.Refused) > 0 || !slices.Equal(o.Isolation.UnheldApplets, result.Paths{file}) {
				t.Errorf("allowed: %s\nrefused %+v, %+v", describe(o), o.Refused, o.Isolation)
			}
		})
	}
}

// Hard links are another way to give a program its names.
func TestHardLinksThatRunTheirAppletsUnseen(t *testing.T) {
	for name, c := range map[string]struct {
		inside, script string
		names          []string
		unheld         bool
	}{
		"a shell inside":             {"sh", "sh -c id", []string{"sh", "id", "cat"}, true},
		"a shell that executes":      {"xargs", "sh -c id", []string{"sh", "id", "cat"}, false},
		"xargs inside":               {"xargs", "xargs id </dev/null", []string{"id", "xargs"}, true},
		"nothing that starts others": {"sh", "cat", []string{"cat", "id"}, false},
	} {
		bin, work := worlds(t)
		compile(t, filepath.Join(bin, "applets"), applets, `-DINSIDE="`+c.inside+`"`, "-DHOSTILE=")
		for _, name := range c.names {
			if err := os.Link(filepath.Join(bin, "applets"), filepath.Join(bin, name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Remove(filepath.Join(bin, "applets")); err != nil {
			t.Fatal(err)
		}
		listed := slices.DeleteFunc(slices.Clone(c.names), func(name string) bool { return name == "id" })
		o := superviseApart(t, supervision{
			Argv: []string{"bash", "-c", c.script}, Dir: "/", NoNewPrivs: true, Env: []string{"PATH=" + bin + ":" + testPath},
			Rules: &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: listed, Own: "bash"}},
		}, nobody(t)).Outcome
		if c.unheld {
			expectUnheld(t, name, o, filepath.Join(bin, listed[0]))
		} else if !o.Started || strings.Contains(text(o.Stdout), "uid=") || len(o.Isolation.UnheldApplets) > 0 {
			t.Errorf("%s: %s\n%+v", name, describe(o), o.Isolation)
		}
	}
}

func TestAProgramThatExecutesItsAppletsIsHeld(t *testing.T) {
	bin, work := worlds(t)
	file := appletsIn(t, bin, "none", "")
	o := superviseApart(t, supervision{
		Argv: []string{"bash", "-c", `sh -c 'echo a'; sh -c id; xargs id </dev/null; env echo b`}, Dir: "/", NoNewPrivs: true, Env: []string{"PATH=" + bin + ":" + testPath},
		Rules: &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: []string{"sh", "xargs", "env", "echo"}, Own: "bash"}},
	}, nobody(t)).Outcome
	if text(o.Stdout) != "a\nb\n" || len(o.Isolation.UnheldApplets) > 0 || !slices.Equal(o.Isolation.NamesOnly, result.Paths{file}) {
		t.Errorf("%s\n%+v", describe(o), o.Isolation)
	}
	// What the program was asked isn't the call's.
	if diff := cmp.Diff(result.Programs{{Path: bin + "/id", Count: 2, Rule: result.RuleName}, {Path: "/usr/bin/id", Count: 2, Rule: result.RuleNotListed}}, o.Refused); diff != "" {
		t.Errorf("refused: %s", diff)
	}
	for _, p := range o.Executed {
		if !slices.Contains([]string{"bash", "sh", "xargs", "env", "echo"}, filepath.Base(p.Path)) {
			t.Errorf("%s was executed", p.Path)
		}
	}
}

// While it is asked, a program can do less than in a call, and what it starts ends with the question.
func TestAProgramThatIsAskedDoesNoHarm(t *testing.T) {
	bin, work := worlds(t)
	hostile := `for (int i = 0; argc > 2 && i < 3; i++) {
		if (fork()) continue;
		setsid();
		close(open("` + work + `/escaped", O_CREAT | O_WRONLY, 0666));
		printf("said\n"), fflush(stdout);
		if (socket(2, 1, 0) >= 0) close(open("/dev/shm/` + filepath.Base(filepath.Dir(work)) + `", O_CREAT | O_WRONLY, 0666));
		for (;;) pause();
	}`
	file := appletsIn(t, bin, "none", strings.ReplaceAll(hostile, "\n", " "))
	r := superviseApart(t, supervision{
		Argv: []string{"bash", "-c", "echo the call; ls " + work}, Dir: "/", NoNewPrivs: true, Env: []string{"PATH=" + bin + ":" + testPath},
		Rules: &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: []string{"sh", "ls"}, Own: "bash"}},
	}, nobody(t))
	if o := r.Outcome; text(o.Stdout) != "the call\n" || len(r.Left) > 0 || o.LeftRunning > 0 || len(o.Refused) > 0 || !slices.Equal(o.Isolation.NamesOnly, result.Paths{file}) {
		t.Errorf("%s\nleft %v, refused %+v, %+v", describe(o), r.Left, o.Refused, o.Isolation)
	}
	if _, err := os.Stat("/dev/shm/" + filepath.Base(filepath.Dir(work))); err == nil {
		t.Error("it made a socket of the network")
	}
}

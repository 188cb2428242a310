package runner

import (
	"strings"
	"testing"

	"toolcall.dev/operator/internal/result"
)

func code(source string, argv ...string) Command {
	cmd := program(argv...)
	cmd.Source = []byte(source)
	return cmd
}

func TestSourceRunsThroughInterpreters(t *testing.T) {
	for name, c := range map[string]struct {
		cmd            Command
		stdout, stderr string
	}{
		"python": {code("import sys\nprint(sys.argv, open(0).read())\ndef f():\n  raise ValueError('no')\nf()\n", "python3", SourceArg, "a b"),
			"['/dev/fd/3', 'a b'] in\n", "Traceback (most recent call last):\n  File \"/dev/fd/3\", line 5, in <module>\n    f()\n  File \"/dev/fd/3\", line 4, in f\n    raise ValueError('no')\nValueError: no\n"},
		"bash": {code("echo $0 \"$@\"; cat; exit 1", "bash", SourceArg, "a b"), "/dev/fd/3 a b\nin", ""},
		"sh":   {code("echo $0 \"$@\"; cat; exit 1", "sh", SourceArg, "a b"), "/dev/fd/3 a b\nin", ""},
		"perl": {code("print \"$0 @ARGV\\n\", <STDIN>; exit 1", "perl", SourceArg, "a b"), "/dev/fd/3 a b\nin", ""},
		"ruby": {code("puts ARGV[0], STDIN.read; exit 1", "ruby", SourceArg, "a b"), "a b\nin\n", ""},
		"node, which must not resolve the path": {code("console.log(process.argv.slice(1).join(), require('fs').readFileSync(0, 'utf8')); process.exit(1)",
			"node", "--preserve-symlinks-main", SourceArg, "a b"), "/dev/fd/3,a b in\n", ""},
		"awk": {code("{ print \"got\", $0; exit 1 }", "awk", "-f", SourceArg), "got in\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			needs(t, c.cmd.Argv[0])
			c.cmd.Stdin = []byte("in")
			o := runIt(t, t.Context(), c.cmd)
			want{reason: result.NonZeroExit, exit: result.Exit(1), stdout: &c.stdout, stderr: &c.stderr}.check(t, o)
		})
	}
}

func TestSourceIsWholeAndFixed(t *testing.T) {
	large := strings.Repeat("# a comment of some length, again and again\n", 12000)
	cmd := code(large+"echo end", "bash", SourceArg)
	completed("end\n", "").check(t, runIt(t, t.Context(), cmd))

	o := runIt(t, t.Context(), code("text", "bash", "-c", "echo more >>$0; echo over >$0; chmod +x $0 && $0; cat $0", SourceArg))
	if !strings.HasSuffix(text(o.Stdout), "text") || !strings.Contains(text(o.Stderr), "ermi") {
		t.Errorf("it could be changed: %s", describe(o))
	}

	completed("", "").check(t, runIt(t, t.Context(), code("", "cat", SourceArg)))
	// Without a source the argument is one like any other.
	completed(SourceArg+"\n", "").check(t, runIt(t, t.Context(), program("echo", SourceArg)))
}

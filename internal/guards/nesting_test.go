package guards

import (
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"

	"toolcall.dev/operator/api/v1alpha1"
)

// disguises are texts within a command that look as if they closed something, or began nothing.
var disguises = []string{
	"')'", "\")\"", "\\)", "$')'", "'}'", "\"}\"", "\\}", "$'}'", "']'", "é')'", "'é)'", "fi", "done", "esac", "} ", "\x00", "\r", "fi\r", "'\n}'", "# )}]\n", "# fi done esac\n", "<<E\n)}]\nE\n", "<<'E'\n\nfi\nE\n", "| case x in x) ls; esac", "| case x in (x) ls; esac", "<<<')'", "> ']'", "${x%)}", "${x#\\}}", "\\\n')'",
}

// nests are constructs that nest, with a place for a disguise.
var nests = []string{
	"{ ls @;", "( ls @;", "if ls @; then ", "if ls @;", "while ls @;", "for x in @; do ", "case @ in x) ", "ls @ $(", "echo \"@ $(", "f() { ls @;", "echo ${x:-@ $(", "while ls @; do case x in x) ", "i\x00f ls @;", "i\\\nf ls @;", "\"$(if ls @; then ", "((1)) && { ls @;", "{ ls @\n", "( ls @\n", "if ls @\nthen ",
}

// The parser stops before it has read much, whatever the text looks like to what doesn't parse it.
func TestNothingHidesNestingFromTheParsersBound(t *testing.T) {
	t.Parallel()
	const depth = 2000
	parser := syntax.NewParser()
	for _, disguise := range disguises {
		nesting := 0
		for _, nest := range nests {
			part := strings.ReplaceAll(nest, "@", disguise)
			if _, err := parser.Parse(strings.NewReader(part+part), ""); err != nil && !syntax.IsIncomplete(err) {
				continue // a mistake of syntax in this place
			}
			nesting++
			text := &depthReader{strings.Repeat(part, depth)}
			if _, err := parser.Parse(text, ""); !errors.Is(err, errNestsTooDeep) || len(text.rest) < depth*len(part)/2 {
				t.Errorf("%q, %d times: %d bytes of %d are left, %v", part, depth, len(text.rest), depth*len(part), err)
			}
		}
		if nesting < 4 {
			t.Errorf("%q stands in %d of the constructs", disguise, nesting)
		}
	}
}

// allocated returns how often a check allocates, and how many bytes.
func allocated(check func()) (times, bytes uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	check()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc
}

// This one isn't parallel, for its allocations are counted.
func TestQuotedClosingCharactersDontHideNesting(t *testing.T) {
	policy := namePolicy(t, "ls")
	for _, depth := range []int{2025, 4050} {
		script := strings.Repeat("{ ls ')';", depth) + strings.Repeat("};", depth-1) + "}"
		_, bytes := allocated(func() {
			denial := checkScript(policy, script)
			if denial == nil || denial.Reason != v1alpha1.ReasonShellNotParseable || !strings.Contains(denial.Message, "nests too deeply") {
				t.Errorf("depth %d: %+v", depth, denial)
			}
		})
		if bytes > 1<<21 {
			t.Errorf("depth %d: %d bytes are allocated", depth, bytes)
		}
	}
}

func TestOnlyDeepNestingIsRefused(t *testing.T) {
	t.Parallel()
	policy := namePolicy(t, "echo", "ls")
	for _, c := range []struct {
		script string
		passes bool
	}{
		{strings.Repeat("{ ", 90) + "ls;" + strings.Repeat(" };", 89) + " }", true},
		{strings.Repeat("{ ", 1001) + "ls;" + strings.Repeat(" };", 1000) + " }", false},
		{"echo " + strings.Repeat("$(echo ", 90) + "a" + strings.Repeat(")", 90), true},
		{"echo " + strings.Repeat("$(echo ", 1001) + "a" + strings.Repeat(")", 1001), false},
		{"echo $((" + strings.Repeat("(", 40) + "1" + strings.Repeat(")", 40) + "))", true},
		{"echo $((" + strings.Repeat("(", 2001) + "1" + strings.Repeat(")", 2001) + "))", false},
		{strings.Repeat("ls && ", 2000) + "ls", true},
		{strings.Repeat("ls | ", maxDepth/2+1) + "ls", false},
		{"echo $((" + strings.Repeat("1+", maxDepth/2) + "1))", true},
		{"echo $((" + strings.Repeat("1+", maxDepth+1) + "1))", false},
		{strings.Repeat("echo '(((' '[[[' \"{{{\" # ((( {{{\n", 500), true},
	} {
		denial := checkScript(policy, c.script)
		if (denial == nil) != c.passes || denial != nil && !strings.Contains(denial.Message, "nests too deeply") {
			t.Errorf("%.40q, %d bytes: %+v", c.script, len(c.script), denial)
		}
	}
}

// A shell's argument ends at a NUL byte. The API refuses them in spec.shell, and not in a tool's arguments.
func TestNULBytesAreRefused(t *testing.T) {
	t.Parallel()
	calls := map[string]string{
		`{"name":"bash","arguments":{"command":"ls\u0000; id"}}`:                                 "byte 2 of the command is NUL",
		`{"name":"bash","arguments":{"mode":"structured","binary":"l\u0000s"}}`:                  "contains a NUL byte",
		`{"name":"bash","arguments":{"mode":"structured","binary":"ls","args":["a","b\u0000"]}}`: "argument 1, ",
		`{"name":"bash","arguments":{"command":"` + strings.Repeat(`if \u0000`, 20000) + `"}}`:   "byte 3 of the command is NUL",
	}
	for text, contains := range calls {
		var tool v1alpha1.ToolAction
		if err := json.Unmarshal([]byte(text), &tool); err != nil {
			t.Fatal(err)
		}
		action, denial := Map(&v1alpha1.ToolCallSpec{Tool: &tool})
		if denial != nil {
			t.Fatal(denial)
		}
		open := `{"access":"Open","shell":{"enabled":true},"arguments":{"metacharacters":"Allow"}}`
		unrestricted, err := Compile(specFrom(t, open))
		if err != nil {
			t.Fatal(err)
		}
		for _, policy := range []*Policy{unrestricted, kernelPolicy(t, "ls")} {
			denial := policy.Check(Input{Action: action})
			if denial == nil || denial.Reason != v1alpha1.ReasonInvalidArguments || !strings.Contains(denial.Message, contains) {
				t.Errorf("%.80s: %+v", text, denial)
			}
		}
	}
}

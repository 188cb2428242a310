package guards

import (
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

// Work is counted and not timed: a check of twice the input may take a little more than twice the steps.
const growth = 2.2

// expectLinear wants the steps for twice the input to be in proportion. small are steps that don't count.
func expectLinear(t *testing.T, name string, single, double, small float64) {
	t.Helper()
	if double > growth*single+small {
		t.Errorf("%q takes %.0f steps, and %.0f for twice as much", name, single, double)
	}
}

// sourceParts are repeated: each makes a scanner that isn't careful look at the same text again and again.
var sourceParts = []string{
	"import (", "import(#", "os#", "os#\n", "#os\n", "os ", "import ", "from ", "from x import (", "os.", "os\\\n", "__import__(", "'os'(", "'", "\"'", "\\", "\\x", "{'", "'+", "os /*", "os /**/", "a.", "os\n", "import\n", "(", "'o' ", "import a,", "modules[", "\\N{",
	"'#", "'#\n", "'/*", "'/* */", "' # c\n'", "'\n# c '\n", "\\N{x}", "\\N{LATIN SMALL", "fetch)", "import(a)", "require(x)", "require=", "require=" + strings.Repeat("x", 90) + "=", "from xml import (", "from xml import (" + strings.Repeat("x", 90) + ",", "import os.b,", "os . ", "os //", "os // c\n", "'''", "f'{'", "' ' + ", "\u200b", "ﷺ", "ｏｓ.", "\\u", "\\U0000006f", "coding ", "#coding:", "modules['x'", "getattr(x)('", ")('os", "fetch ", "fetch\n",
}

func TestScanningIsLinear(t *testing.T) {
	t.Parallel()
	const size = 16384
	for _, network := range []bool{false, true} {
		scanner := newModuleScanner(append(defaultDeniedModules(), "xml.dom", "child_process", "@x/y-z"), network)
		for _, language := range []string{"python", "javascript"} {
			for _, part := range sourceParts {
				var steps [3]float64
				for i := range steps {
					found := scanner.scan(strings.Repeat(part, size<<i/len(part)), language)
					if found.unreadable == "" && found.denied == "" && found.steps == 0 {
						t.Fatalf("%q: nothing was counted", part)
					}
					steps[i] = float64(found.steps)
				}
				expectLinear(t, part, steps[0], steps[1], leastAhead)
				expectLinear(t, part, steps[1], steps[2], leastAhead)
			}
		}
	}
}

func TestTheBoundOfASearchIsFarFromOrdinarySources(t *testing.T) {
	t.Parallel()
	policy := codePolicy(t, v1alpha1.CodePolicy{})
	for _, part := range []string{"'http/*'; ", "http # ", "x = 'os'; "} {
		if denial := checkCode(policy, "python", strings.Repeat(part, 65536/len(part))); denial != nil {
			t.Errorf("%q: %s", part, denial.Message)
		}
	}
}

// scriptParts are repeated like sourceParts.
var scriptParts = []string{
	"(", "{ ", "$(", "`", "if ", "while ", "! ", "time ", "\"$(", "${x:-", "$((", "((", "f() { ", "case x in x) ", "ls && ", "ls | ", "eval ", "coproc ", "<(", "[[ ( ", "[[ ! ", "$((-", "$((1+", "a[", "bash -c '", "<<<", "<<E ", "echo $((1,", "x=(", "$'", "ls; ", "ls & ", "a=1 ", "env ", "find . -exec ", "function f ", "for x in ",
	"a=1\n", "ls\n", "a=1; echo $((a))\n", "eval 'ls'\n", "trap 'eval ls' EXIT\n", "find . -exec ls {} + ; ", "unset a\n", "[ a = b ]\n", "sed 's/[[.x/y/' a\n", "awk '{ print }' a\n", "cat <<EOF\n$x\nEOF\n",
}

// A check allocates for each node of a script's tree, so that allocations count its work.
func TestCheckingScriptsIsLinear(t *testing.T) {
	const size = 4096
	policy := namePolicy(t, "ls", "find", "env", "bash", "sed", "awk", "cat")
	for _, part := range scriptParts {
		var allocations [3]float64
		for i := range allocations {
			script := strings.Repeat(part, size<<i/len(part))
			allocations[i] = testing.AllocsPerRun(1, func() {
				if denial := checkScript(policy, script); denial != nil && (denial.Reason == v1alpha1.ReasonGuardError || len(denial.Message) > 2000) {
					t.Errorf("%q: %s", part, denial.Message)
				}
			})
		}
		expectLinear(t, part, allocations[0], allocations[1], 1000)
		expectLinear(t, part, allocations[1], allocations[2], 1000)
	}
}

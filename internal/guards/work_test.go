package guards

import (
	"fmt"
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

// Where it isn't in the nature of the text, the bound ends the search, and the source is refused.
func TestASourceThatTakesTooLongToSearchIsRefused(t *testing.T) {
	t.Parallel()
	policy := codePolicy(t, v1alpha1.CodePolicy{})
	for _, part := range []string{"require=", "require=" + strings.Repeat("x", 90) + "="} {
		denial := checkCode(policy, "python", strings.Repeat(part, 65536/len(part)))
		if denial == nil || denial.Reason != v1alpha1.ReasonModuleNotAllowed || !strings.Contains(denial.Message, "too many steps") {
			t.Errorf("%.40q: %+v", part, denial)
		}
	}
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

// stepsOf are the steps and the allocations of a check. The allocations don't depend on what the check counts itself.
func stepsOf(policy *Policy, script string) (work, allocations float64) {
	allocations = testing.AllocsPerRun(1, func() {
		checker := newChecker(policy, nil, len(script))
		_, _ = checker.callScript(script)
		work = float64(checker.work)
	})
	return work, allocations
}

func TestCheckingScriptsIsLinear(t *testing.T) {
	policy := allowlistedPolicy(t, append([]string{"sed", "awk", "sh", "bash"}, usualList...)...)
	const size = 8192
	scripts := map[string]func(size int) string{
		"functions that call each other": func(size int) string { return mutualFunctions(20, size) },
		"sh within sh":                   func(size int) string { return nestedShells(strings.Repeat("ls\n", size/3)) },
	}
	for _, part := range scriptParts {
		scripts[part] = func(size int) string { return strings.Repeat(part, size/len(part)) }
	}
	for name, script := range scripts {
		var work, allocations [3]float64
		for i := range work {
			work[i], allocations[i] = stepsOf(policy, script(size<<i))
		}
		for i := range 2 {
			expectLinear(t, name, work[i], work[i+1], leastWork)
			expectLinear(t, name+" (allocations)", allocations[i], allocations[i+1], 2000)
		}
	}
}

// mutualFunctions defines functions each of which calls itself and all those before it, and calls them.
func mutualFunctions(count, size int) string {
	var script strings.Builder
	for f := range count {
		fmt.Fprintf(&script, "f%d() {\n", f)
		for called := range count {
			if called <= f {
				fmt.Fprintf(&script, "f%d\n", called)
			}
		}
		script.WriteString("}\n")
	}
	for script.Len() < size {
		script.WriteString("f1\n")
	}
	return script.String()
}

// nestedShells passes a script to sh -c, as deep as is allowed. Each sh has its script checked twice.
func nestedShells(script string) string {
	for range maxDepth - 1 {
		script = "sh -c '" + strings.ReplaceAll(script, "'", `'\''`) + "'"
	}
	return script
}

func TestAScriptThatTakesTooLongToCheckIsRefused(t *testing.T) {
	t.Parallel()
	policy := allowlistedPolicy(t, append([]string{"sh"}, usualList...)...)
	for name, script := range map[string]string{
		"sh within sh": nestedShells(strings.Repeat("ls -l\n", 1000)),
	} {
		denial := checkScript(policy, script)
		if denial == nil || denial.Reason != v1alpha1.ReasonShellNotParseable || !strings.Contains(denial.Message, "too many steps") {
			t.Errorf("%s: %+v", name, denial)
		}
	}
	// Scripts of an ordinary shape pass whatever their size.
	var ordinary strings.Builder
	for f := range 50 {
		fmt.Fprintf(&ordinary, "f%d() {\n", f)
		for called := range f {
			fmt.Fprintf(&ordinary, "  f%d\n", called)
		}
		ordinary.WriteString("  ls\n}\n")
	}
	for ordinary.Len() < 20000 {
		ordinary.WriteString("f0 && ls\n")
	}
	for name, script := range map[string]string{"many functions": ordinary.String(), "sh within sh": "sh -c 'sh -c \"bash -c ls\"'"} {
		if denial := checkScript(policy, script); denial != nil {
			t.Errorf("%s: %s", name, denial.Message)
		}
	}
}

func TestReadingSedsBracketsIsLinear(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"[.", "[:", "[=", "[.[:[=", "[.a.]", "[", "]", "\\]"} {
		var looked [2]float64
		for i := range looked {
			reader := &sedReader{text: "s/[" + strings.Repeat(part, 8192<<i) + "/x/", brackets: true}
			reader.run()
			looked[i] = float64(reader.looked + reader.at)
		}
		expectLinear(t, part, looked[0], looked[1], 0)
	}
}

func TestScriptsThatAreTooDeepAreRefusedCleanly(t *testing.T) {
	t.Parallel()
	policy := allowlistedPolicy(t, usualList...)
	for _, part := range scriptParts {
		denial := checkScript(policy, strings.Repeat(part, 131071/len(part)))
		if denial == nil {
			continue
		}
		if denial.Reason == v1alpha1.ReasonGuardError {
			t.Errorf("%q: the guard failed: %s", part, denial.Message)
		}
		if len(denial.Message) > 2000 {
			t.Errorf("%q: message of %d bytes", part, len(denial.Message))
		}
	}
}

const (
	// worstSize is the size of the largest call, and mostAllocations bounds the allocations of its check: they count the
	// nodes and words that are looked at, and don't depend on what the check counts itself.
	worstSize       = 131072
	mostAllocations = 400000
)

// worstScripts are inputs that once took seconds, at the largest size.
func worstScripts() map[string]string {
	scripts := map[string]string{
		"functions that call each other": mutualFunctions(150, worstSize),
		"nested shells":                  nestedShells(strings.Repeat("ls\n", 40000)),
		"many nested shells":             strings.Repeat("sh -c 'ls'\n", worstSize/11),
		"many traps":                     strings.Repeat("trap 'ls' EXIT\n", worstSize/15),
		"a long option":                  "sort --" + strings.Repeat("a", worstSize),
		"a long option of env":           "env --" + strings.Repeat("a", worstSize) + " ls",
		"a long variable":                strings.Repeat("a", worstSize) + "=1",
		"a long value":                   "x=" + strings.Repeat("a", maxValue) + "\nls " + strings.Repeat("$x", worstSize/2),
		"many names":                     "unset " + strings.Repeat("a ", worstSize/2),
	}
	for _, part := range scriptParts {
		scripts[part] = strings.Repeat(part, worstSize/len(part))
	}
	return scripts
}

func TestTheWorstScriptsTakeBoundedWork(t *testing.T) {
	for _, enforcement := range []v1alpha1.Enforcement{v1alpha1.EnforcementText, v1alpha1.EnforcementKernel} {
		policy := allowlistedPolicy(t, append([]string{"sed", "awk", "sh", "sort"}, usualList...)...)
		policy.binaries.enforcement = enforcement
		for name, script := range worstScripts() {
			allocations := testing.AllocsPerRun(1, func() { checkScript(policy, script) })
			if allocations > mostAllocations {
				t.Errorf("%s: %.30q takes %.0f allocations", enforcement, name, allocations)
			}
		}
	}
}

// closings close what a part opens, so that the whole is read and not only its start.
var closings = map[string]string{
	"{ ls ')';": "};", "{\n": "}\n", "( ls \"}\";": ") ", "if ls 'fi'; then ": "; fi", "if \x00": "", "i\\\nf ls # fi\n": "then ls; fi\n", "case x in x) ": ";; esac", "ls $'\\')' $(": ")", "echo $((1+": "1))", "$((1?": ":1))", "(1?": ":1)", "a[": "]", "[}": "", "[": "]", "\"$(": ")\"", "f() {\n": "\n}\n", "[[ ! ( ": "a ) ]]", "é\r{ ls é;": "};", "ls &&\n": "", "x=(": ")", "cat <<E\n)\nE\n{\n": "}\n",
}

// mostBytes bounds what a check of the largest call allocates, in bytes.
const mostBytes = 1 << 26

func expectBounded(t *testing.T, policy *Policy, script string) {
	t.Helper()
	if times, bytes := allocated(func() { checkScript(policy, script) }); times > mostAllocations || bytes > mostBytes {
		t.Errorf("%.80q, %d bytes: %d allocations of %d bytes", script, len(script), times, bytes)
	}
}

// FuzzWork looks for texts whose repetition makes a check take more work than its size allows.
func FuzzWork(f *testing.F) {
	for _, part := range append(append([]string{}, scriptParts...), sourceParts...) {
		f.Add(part, "")
	}
	for opening, closing := range closings {
		f.Add(opening, closing)
	}
	policy := allowlistedPolicy(f, append([]string{"sed", "awk", "sh", "sort", "git", "tar"}, usualList...)...)
	scanner := newModuleScanner(defaultDeniedModules(), true)
	kernel := kernelPolicy(f, "ls")
	f.Fuzz(func(t *testing.T, part, closing string) {
		if part == "" || len(part) > 200 || len(closing) > 200 {
			return
		}
		// As many as fit into the largest call, as pass the bound on commands, and as pass that on nesting.
		whole := worstSize / (len(part) + len(closing))
		for _, times := range []int{whole, maxSeparators/2 - maxNesting, maxNesting / 2} {
			nested := strings.Repeat(part, times) + strings.Repeat(closing, times)
			for _, text := range []string{nested, strings.Repeat(nested+"\n", max(1, worstSize/(len(nested)+1)))} {
				for _, policy := range []*Policy{policy, kernel} {
					expectBounded(t, policy, text)
				}
			}
		}
		source := strings.Repeat(part, worstSize/2/len(part))
		if steps := scanner.scan(source, "javascript").steps; steps > 100*len(source)+20*leastAhead {
			t.Errorf("%q takes %d steps as a source", part, steps)
		}
	})
}

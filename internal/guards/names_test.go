package guards

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

func listPolicy(t testing.TB, enforcement v1alpha1.Enforcement, names ...string) *Policy {
	t.Helper()
	enabled := true
	policy, err := Compile(&v1alpha1.ExecutionPolicySpec{
		Access:    v1alpha1.AccessOpen,
		Shell:     &v1alpha1.ShellPolicy{Enabled: &enabled, Commands: v1alpha1.ShellAllowlisted},
		Binaries:  &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Enforcement: enforcement, Allowed: names},
		Arguments: &v1alpha1.ArgumentsPolicy{Metacharacters: v1alpha1.MetacharactersAllow},
	})
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func kernelPolicy(t testing.TB, names ...string) *Policy {
	t.Helper()
	return listPolicy(t, v1alpha1.EnforcementKernel, names...)
}

func namePolicy(t testing.TB, names ...string) *Policy {
	t.Helper()
	return listPolicy(t, v1alpha1.EnforcementName, names...)
}

func checkScript(policy *Policy, script string) *Denial {
	return policy.Check(Input{Action: &Action{Type: v1alpha1.ActionShell, Command: script}})
}

func TestKernelIsTheDefault(t *testing.T) {
	t.Parallel()
	for _, spec := range []*v1alpha1.ExecutionPolicySpec{nil, {}, {Binaries: &v1alpha1.BinariesPolicy{}}} {
		policy, err := Compile(spec)
		if err != nil || policy.Enforcement() != v1alpha1.EnforcementKernel || policy.HoldsPrograms() {
			t.Errorf("%+v: %v, %v", spec, policy.Enforcement(), err)
		}
	}
	open, err := Compile(&v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Commands: v1alpha1.ShellAllowlisted}})
	if err != nil || open.HoldsPrograms() {
		t.Error("a list that is empty and permissive holds programs")
	}
	if kernel, weak := kernelPolicy(t), namePolicy(t); !kernel.HoldsPrograms() || weak.Enforcement() != v1alpha1.EnforcementName {
		t.Error("the enforcement of a policy is lost")
	}
}

// refusedNames are scripts with a name that is written out and isn't listed, with its position.
var refusedNames = map[string]string{
	"id": "line 1, column 1", "ls && id": "line 1, column 7", "ls\necho $(id)": "line 2, column 8", "'i'd": "line 1, column 1", "\\id": "line 1, column 1", "\"id\" x": "line 1, column 1", "f() { id; }": "line 1, column 7",
	"if ls; then id; fi": "line 1, column 13", "/usr/bin/id": "line 1, column 1", "/srv/../bin/id": "line 1, column 1", "ls | id": "line 1, column 6", "FOO=1 id": "line 1, column 7", "ls <(id)": "line 1, column 6", "i\\\nd": "line 1, column 1",
	"/bin/ls": "line 1, column 1", "ls && /usr/bin/lint": "line 1, column 7", "x=`id`": "line 1, column 4", "cat <<E\n$(id)\nE\n": "line 2, column 3", "case x in $(id)) ls;; esac": "line 1, column 13", "echo \"$(id)\"": "line 1, column 9", "coproc id": "line 1, column 8", "time id": "line 1, column 6", "eval \"$(id)\"": "line 1, column 9", ". <(id)": "line 1, column 5", "id; source x": "line 1, column 1", "! id": "line 1, column 3",
}

// misreadScripts are read otherwise by bash than by the parser: most of them run id.
var misreadScripts = []string{
	"ls # x \\\nid", "ls #\\\nid", "ls \\\n# x \\\nid", "if ls # \\\nthen id\nthen ls; fi", "x=(a # c\\\nb); ls", "ls \\\r\nid", "ls a\r# x; id",
	"ls \"$\\\n(id)\"", "ls $\\\n'\\x69d'", "cat <<E\n$\\\n(id)\nE",
	"ls ${x:-<(id)}", "x=a; ls ${x/a/<(id)}", "y=${x:=<(id)}", "ls ${x:->(id)}",
	"coproc id >x", "coproc id -- | ls", "coproc x=1 id", "coproc ls # \\\nid", "coproc id \\\n x=1",
	"ls \"`cat <<'E'`\"\nid\nE", "ls `cat <<id`\nid", "cat <<'E' $(cat <<'F')\nF\nE\nid\nF", "cat <<'E'; x=(a\nE\nb)\n\nid\nE", "cat <<'E'; x=(a\nb)\nE\nls",
	"cat <<E\n$(cat <<F\nE\nid\nF\n)\nE", "cat <<-E; x=$(ls\n\tE\nid\n)\n\tE",
	"ls \"${y:-'$(id)'}\"", "cat <<E\n${y:-'$(id)'}\nE", "ls \"${x+'}\"; id; ls \"'}\"", "cat <<E\nx\nE\\\n\nid\nE", "cat <<EF\nE\\\nF\nid\nEF",
	"time -- id", "time -p -- id | ls", "coproc id declare x", "coproc id let x1=1", "coproc id time ls",
}

// readScripts are like those above, and bash and the parser read them alike.
var readScripts = []string{
	"ls # x\nls", "coproc ls -l", "coproc X { ls; }", "coproc { ls; }", "# x \\\n# y \\\n\t# z\\\nls", "ls '# x \\\n'", "ls \\\n -l # x", "ls '$\\\n(id)'", "ls \"a\\\nb\" $x \\\n a", "ls ${x:-a b} <(ls)", "ls \"$(cat <<'E'\n$x (it's\nE\n)\"", "cat <<E | cat\n$(ls)\nE\nls",
	"cat <<A <<B; ls\n1\nA\n2\nB\nls", "cat <<A\nA\ncat <<B\nB", "cat <<-E > x\n\ta\n\tE\nls", "cat <<E \\\n | cat\na\nE", "f() {\ncat <<\"E F\"\na\n\nE F\n}; f", "(cat <<E)\nid\nE", "cat <<E\n\na\\\n b$x\nE", "cat <<'E'\nE\\\n\nE\nls", "ls ${x//'\"'/}", "ls \"${x:-'a'}\"", "time -p ls", "cat <<E\n$x\nE", "ls; cat <<E\na `ls`\nE",
}

func TestUnderKernelOnlyNamesThatAreWrittenOutAreRefused(t *testing.T) {
	t.Parallel()
	policy := kernelPolicy(t, "ls", "cat", "bash", "python3", "/opt/tools/lint", "/srv/bin/")
	bare := kernelPolicy(t, "ls", "cat", "bash", "python3", "/opt/tools/lint")
	for _, script := range []string{
		"ls", "c=id; $c", "eval id", "eval $x", "python3 -c 'import os'", "bash -c id", "bash script.sh", "f() { ls; }; f", "if true; then f() { ls; }; fi; f", "g; g() { ls; }",
		"source venv/bin/activate; deactivate", ". ./lib.sh && helper", `[ -s "$NVM_DIR/nvm.sh" ] && \. "$NVM_DIR/nvm.sh"; nvm use 18`, "'source' lib.sh; helper", "f() { helper; }; . lib.sh; f", "while read x; do if $y; then helper; else . lib.sh; y=:; fi; done", "for x in a b; do helper; eval \"$x\"; done",
		"$(. lib.sh; helper)", `eval "$(. lib.sh; helper)"`, "source <(. lib.sh; helper)", "out=$(. lib.sh; helper) eval x", "./gradlew test", "node_modules/.bin/tsc", "../x", "/opt/tools/lint", "lint .",
		"IFS= read -r x", "echo $((x))", "declare -A m; m[a]=1", "ls <(ls)", "cat() { ls; }; cat", "mapfile -t a < f", "shopt -s globstar", "trap 'id' EXIT", "ls \\\n -l", "PATH=$PATH:/x ls", "cat <<E\nx", "ls )", "x=1", "[[ -v x ]]", "\"$x\" y", "${x}id", "i$x", "i*", "{id,x}", "~/bin/x", "$'id'", "coproc ls", "",
		strings.Repeat("(", 5000), "kill 1", "command -v id", "builtin cd", "type id", "env2=1 ls", "let x=1", "time ls", "export -p PATH", strings.Repeat("ls;", 9000),
	} {
		if denial := checkScript(bare, script+"\n:"); denial != nil {
			t.Errorf("%q: %s", script, denial.Message)
		}
	}
	for _, script := range slices.Concat(misreadScripts, readScripts) {
		if denial := checkScript(bare, script); denial != nil {
			t.Errorf("%q: %s", script, denial.Message)
		}
	}
	for script, position := range refusedNames {
		denial := checkScript(bare, script)
		if denial == nil || denial.Reason != v1alpha1.ReasonShellCommandNotAllowed || !strings.HasPrefix(denial.Message, position+": the program ") {
			t.Errorf("%q: %+v", script, denial)
			continue
		}
		if at := fmt.Sprintf("line %d, column %d", denial.Line, denial.Column); at != position || !slices.Contains(denial.Alternatives, "ls") {
			t.Errorf("%q: at %s, instead %q", script, at, denial.Alternatives)
		}
	}
	// Any name may lead to a listed directory.
	for _, script := range []string{"id", "/srv/bin/x", "/srv/bin/sub/x"} {
		if denial := checkScript(policy, script); denial != nil {
			t.Errorf("%q: %s", script, denial.Message)
		}
	}
	if denial := policy.Check(Input{Action: &Action{Type: v1alpha1.ActionShell, Command: "id"}, Shell: []string{"python3", "-c"}}); denial != nil {
		t.Errorf("what isn't a shell's script is read as one: %+v", denial)
	}
}

func TestUnderNameANameIsWrittenOutAndListed(t *testing.T) {
	t.Parallel()
	policy := namePolicy(t, "ls", "cat", "env", "bash", "xargs", "/opt/tools/lint", "/srv/bin/")
	for _, script := range append([]string{
		"ls", "ls -l | cat", "'ls' x", "\\ls", "l\\\ns", "f() { ls; }; f", "f; f() { ls; }", "cd x && ls", "x=$(ls)", "for x in $(ls); do cat \"$x\"; done", "IFS= read -r x", "/opt/tools/lint .", "/srv/bin/x", "[ -e x ] && ls", "[[ x ]]", "if true; then ls; fi", "x=1", "# nothing", "",
		// Nothing more is looked at.
		"env id", "bash -c id", "xargs id", "eval id", "exec id", "command id", "trap id EXIT", ". ./x", "find2=1 ls",
	}, readScripts...) {
		if denial := checkScript(policy, script+"\n:"); denial != nil {
			t.Errorf("%q: %s", script, denial.Message)
		}
	}
	for script, position := range refusedNames {
		denial := checkScript(policy, script)
		if denial == nil || denial.Reason != v1alpha1.ReasonShellCommandNotAllowed || !strings.HasPrefix(denial.Message, position+": the program ") {
			t.Errorf("%q: %+v", script, denial)
			continue
		}
		if at := fmt.Sprintf("line %d, column %d", denial.Line, denial.Column); at != position || !slices.Contains(denial.Alternatives, "ls") {
			t.Errorf("%q: at %s, instead %q", script, at, denial.Alternatives)
		}
	}
	for _, script := range []string{"$x", "\"$x\"", "ls; ${x}", "$(ls)", "l$x", "l*", "l?", "[l]s", "{ls,id}", "~/ls", "$'ls'", "`ls`", "\"$(ls)\"", "l\"$x\"", "ls | $x", "lint", "./ls", "helper"} {
		denial := checkScript(policy, script)
		if denial == nil || denial.Reason != v1alpha1.ReasonShellCommandNotAllowed {
			t.Errorf("%q: %+v", script, denial)
		}
	}
	for _, script := range append([]string{"echo 'x", "ls )", strings.Repeat("(", 5000), strings.Repeat("ls;", 9000), "ls \xff"}, misreadScripts...) {
		denial := checkScript(policy, script)
		if denial == nil || denial.Reason != v1alpha1.ReasonShellNotParseable || len(denial.Message) > 500 {
			t.Errorf("%.20q: %+v", script, denial)
		}
	}
	denial := policy.Check(Input{Action: &Action{Type: v1alpha1.ActionShell, Command: "ls"}, Shell: []string{"zsh", "-c"}})
	if denial == nil || denial.Reason != v1alpha1.ReasonShellCommandNotAllowed || !strings.Contains(denial.Message, "zsh") {
		t.Errorf("another shell's script: %+v", denial)
	}
}

// A script that bash can't parse either is told so before anything runs.
func TestWhatEndsTooEarlyIsRefusedUnderBoth(t *testing.T) {
	t.Parallel()
	for _, policy := range []*Policy{kernelPolicy(t, "ls"), namePolicy(t, "ls")} {
		for _, script := range []string{"echo 'x", "echo \"x", "if ls; then", "for x in a; do ls", "ls $(ls", "f() {", "case x in", "case x in a) ls", "ls &&",
			"echo ${a", "echo $((1", "echo $((1+", "((1+", "((", "[[ a", "[[ -f", "for", "for i in", "echo >", "cat <<<", "coproc", "{ ls;"} {
			denial := checkScript(policy, script)
			if denial == nil || denial.Reason != v1alpha1.ReasonShellNotParseable || !strings.HasPrefix(denial.Message, fmt.Sprintf("line 1, column %d: ", denial.Column)) || denial.Line != 1 {
				t.Errorf("%s, %q: %+v", policy.Enforcement(), script, denial)
			}
		}
	}
}

// What the parser can't read and bash runs, is bash's to answer, where the kernel holds the list.
func TestWhatBashMayRunPassesUnderKernel(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"!", "ls; !", "a=(1) ls", "a[0]=x ls", "let x=1+", "a[", "a[1", "cat <<X\na", "ls; ! !",
		"ls\nexit 0\nit's a note", "ls; exit\nif", "exec ls\nif"} {
		if denial := checkScript(kernelPolicy(t, "ls", "cat"), script); denial != nil {
			t.Errorf("%q: %+v", script, denial)
		}
	}
}

// Where they are written out, and nothing else holds the list: what they lead to, the kernel asks about.
func TestProtectedVariablesAreNotAssignedUnderName(t *testing.T) {
	t.Parallel()
	for _, policy := range []*Policy{namePolicy(t, "ls")} {
		for _, script := range []string{
			"PATH=/x", "PATH=$PATH:/x ls", "ls; LD_PRELOAD=x ls", "export PATH=/x", "declare -x LD_LIBRARY_PATH=x", "local IFS=,", "readonly BASH_ENV=x", "for PATH in a b; do ls; done", "echo ${PATH:=x}", "f() { PATH=x; }", "PATH+=:/x", "IFS=, ls", "IFS=,",
			`export "PATH=/x"`, "export 'LD_PRELOAD=x'", `declare -x "PATH=$PATH:/x"`, `export "PATH+=:/x"`, `readonly "PATH=\$x"`, `export FOO=1 P"ATH=/x"`,
			`\export PATH=/x`, `"export" PATH=$PATH:/x`, `command export PATH=/x`, `builtin declare -x "LD_PRELOAD=x"`, `command -p export PATH=/x`,
		} {
			denial := checkScript(policy, script)
			if denial == nil || denial.Reason != v1alpha1.ReasonShellCommandNotAllowed || !strings.Contains(denial.Message, "protectedEnv") {
				t.Errorf("%s, %q: %+v", policy.Enforcement(), script, denial)
			}
			if denial := checkScript(kernelPolicy(t, "ls"), script); denial != nil {
				t.Errorf("Kernel, %q: %s", script, denial.Message)
			}
		}
		for _, script := range []string{"FOO=1", "ls $PATH", "export PATH", "while IFS= read -r x; do ls; done", "IFS=: read -r a b", "echo ${PATH:-x}", "unset PATH", `export "FOO=PATH=x"`, `export "$x"`, `export "$x=PATH="`, `export "PATH"`, `declare -x "PATHS=x"`} {
			if denial := checkScript(policy, script); denial != nil {
				t.Errorf("%s, %q: %s", policy.Enforcement(), script, denial.Message)
			}
		}
	}
}

func TestStructuredCallsNameListedProgramsByNameOrPath(t *testing.T) {
	t.Parallel()
	for _, enforcement := range []v1alpha1.Enforcement{v1alpha1.EnforcementKernel, v1alpha1.EnforcementName} {
		policy := listPolicy(t, enforcement, "env", "/opt/tools/lint", "/srv/bin/")
		for binary, reason := range map[string]string{
			"env": "", "/opt/tools/lint": "", "/srv/bin/x": "", "/srv/bin/a/b": "", "lint": v1alpha1.ReasonBinaryNotAllowed, "id": v1alpha1.ReasonBinaryNotAllowed, "/usr/bin/env": v1alpha1.ReasonBinaryNotBareName, "./env": v1alpha1.ReasonBinaryNotBareName,
			"/srv/bin/../x": v1alpha1.ReasonBinaryPathTraversal, "/srv/bin//x": v1alpha1.ReasonBinaryNotBareName, "/srv/bin/": v1alpha1.ReasonBinaryNotBareName, "/srv/bin": v1alpha1.ReasonBinaryNotBareName,
		} {
			denial := policy.Check(Input{Action: structured(binary)})
			if got := denial; (got == nil) != (reason == "") || got != nil && got.Reason != reason {
				t.Errorf("%s, %s: want %q, got %+v", enforcement, binary, reason, got)
			}
		}
		if launch := policy.Check(Input{Action: structured("env", "id"), Env: []v1alpha1.CallEnvVar{{Name: "GIT_DIR", Value: "x"}}}); launch != nil {
			t.Errorf("%s: env id: %+v", enforcement, launch)
		}
	}
}

func TestAWeakPolicySaysThatItIsWeak(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		binaries v1alpha1.BinariesPolicy
		weak     bool
	}{
		{v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Enforcement: v1alpha1.EnforcementName, Allowed: []string{"ls"}}, true},
		{v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Enforcement: v1alpha1.EnforcementKernel, Allowed: []string{"python3"}}, false},
		{v1alpha1.BinariesPolicy{Enforcement: v1alpha1.EnforcementName, Allowed: []string{"ls"}}, false},
	} {
		policy, err := Compile(&v1alpha1.ExecutionPolicySpec{Binaries: &c.binaries})
		if err != nil || strings.Contains(strings.Join(policy.Warnings(), "\n"), "weak") != c.weak {
			t.Errorf("%+v: %q, %v", c.binaries, policy.Warnings(), err)
		}
	}
}

func TestAPolicyWarnsOfWhatItsListLeavesOpen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ policy, warning string }{
		"unset":                 {`{"binaries":{"mode":"Enforced"}}`, ""},
		"Deny":                  {`{"binaries":{"mode":"Enforced","multiCall":"Deny","allowWritable":false}}`, ""},
		"Allow":                 {`{"binaries":{"mode":"Enforced","multiCall":"Allow"}}`, "binaries.multiCall is Allow"},
		"writable":              {`{"binaries":{"mode":"Enforced","allowWritable":true}}`, "binaries.allowWritable is true"},
		"writable, by name":     {`{"binaries":{"mode":"Enforced","allowWritable":true,"enforcement":"Name"}}`, "binaries.enforcement is Name"},
		"no list":               {`{"binaries":{"multiCall":"Allow","allowWritable":true}}`, ""},
		"scripts, no list":      {`{"shell":{"commands":"Allowlisted"}}`, "shell.commands is Allowlisted, and the list is empty and Permissive, so that any program may run"},
		"scripts, an empty one": {`{"shell":{"commands":"Allowlisted"},"binaries":{"enforcement":"Name"}}`, "shell.commands is Allowlisted"},
		"scripts, none listed":  {`{"shell":{"commands":"Allowlisted"},"binaries":{"mode":"Enforced"}}`, ""},
		"scripts, a list":       {`{"shell":{"commands":"Allowlisted"},"binaries":{"allowed":["ls"]}}`, ""},
		"a list alone":          {`{"binaries":{"allowed":["ls"]}}`, "binaries.mode is Permissive, and only the program that a Structured call names"},
		"a list, Permissive":    {`{"binaries":{"mode":"Permissive","allowed":["ls"],"enforcement":"Name"}}`, "binaries.mode is Permissive"},
	} {
		policy, err := Compile(specFrom(t, c.policy))
		if err != nil {
			t.Fatal(err)
		}
		warnings := policy.Warnings()
		if len(warnings) > 1 || (len(warnings) == 1) != (c.warning != "") || !strings.HasPrefix(strings.Join(warnings, " "), c.warning) {
			t.Errorf("%s: %q", name, warnings)
		}
	}
}

// FuzzNames checks that no script makes a guard fail, and that whatever Name lets pass, Kernel's early answer does.
func FuzzNames(f *testing.F) {
	for script := range refusedNames {
		f.Add(script)
	}
	kernel, weak := kernelPolicy(f, "ls", "cat"), namePolicy(f, "ls", "cat")
	f.Fuzz(func(t *testing.T, script string) {
		early, denial := checkScript(kernel, script), checkScript(weak, script)
		for _, d := range []*Denial{early, denial} {
			if d != nil && d.Reason == v1alpha1.ReasonGuardError {
				t.Errorf("a guard failed: %s", d.Message)
			}
		}
		if denial == nil && early != nil {
			t.Errorf("Name allows it, and Kernel refuses it: %s", early.Message)
		}
	})
}

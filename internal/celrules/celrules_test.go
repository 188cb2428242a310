package celrules

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/denials"
	"toolcall.dev/operator/internal/guards"
)

// input is that of a call of alice in the environment "env", without a session.
func input(t *testing.T, spec v1alpha1.ToolCallSpec, changes ...func(*Input)) *Input {
	t.Helper()
	action, denial := guards.Map(&spec)
	if denial != nil {
		t.Fatal(denial.Message)
	}
	in := &Input{
		Call: &v1alpha1.ToolCall{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "call", Labels: map[string]string{"run": "7"}}, Spec: spec,
		},
		Action: action,
		Caller: &v1alpha1.Requester{Username: "alice", UID: "u", Groups: []string{"dev"}},
		Environment: &v1alpha1.ExecutionEnvironment{
			ObjectMeta: metav1.ObjectMeta{Name: "env", Labels: map[string]string{"tier": "prod"}},
			Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "image:1"},
		},
	}
	for _, change := range changes {
		change(in)
	}
	return in
}

func shell(command string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: command}}
}

func program(binary string, args ...string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: binary, Args: args}}
}

func code(language, source string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: language, Source: source}}
}

func inSession(in *Input) {
	in.Session = &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Name: "work", Labels: map[string]string{"team": "a"}}}
}

func denies(expression string) v1alpha1.PolicyRule {
	return v1alpha1.PolicyRule{Name: "r", Expression: expression, Effect: v1alpha1.RuleDeny, Message: "no"}
}

func mustCompile(t *testing.T, rules ...v1alpha1.PolicyRule) *Set {
	t.Helper()
	s, err := Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each expression is true.
func TestVariables(t *testing.T) {
	t.Parallel()
	tool := v1alpha1.ToolCallSpec{Tool: &v1alpha1.ToolAction{Name: "bash", Arguments: &runtime.RawExtension{Raw: []byte(`{"command":"ls","n":3,"more":{"x":[1]}}`)}}}
	move := v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileMove, Path: "/a", Destination: "/b"}}
	full := program("ls", "-l")
	full.TimeoutSeconds, full.Env, full.Collect = ptr.To(int32(7)), []v1alpha1.CallEnvVar{{Name: "A", Value: "b"}}, []string{"*.txt"}
	for _, c := range []struct {
		spec       v1alpha1.ToolCallSpec
		expression string
	}{
		{full, `call.metadata.namespace == "ns" && call.metadata.name == "call" && call.metadata.labels["run"] == "7" && !("x" in call.metadata.labels)`},
		{full, `call.spec.structured.binary == "ls" && call.spec.timeoutSeconds > 5 && call.spec.env.exists(e, e.name == "A" && e.value == "b")`},
		{full, `!has(call.spec.shell) && !has(call.spec.network) && "*.txt" in call.spec.collect`},
		{full, `action.type == "Structured" && action.tool == "ls" && action.binary == "ls" && action.args == ["-l"] && action.command == ""`},
		{full, `action.commands.size() == 1 && action.commands[0].name == "ls" && action.commands[0].literal && action.modules == []`},
		{full, `caller.username == "alice" && caller.uid == "u" && "dev" in caller.groups`},
		{full, `environment.name == "env" && environment.image == "image:1" && environment.labels["tier"] == "prod"`},
		{full, `session == null && !has(session.name)`},
		{tool, `action.type == "Shell" && action.tool == "bash" && call.spec.tool.arguments.n == 3 && call.spec.tool.arguments.more.x[0] == 1`},
		{shell("git push -f; $x"), `action.commands.exists(c, c.name == "git" && c.args.exists(a, a == "-f")) && action.commands.exists(c, !c.literal)`},
		{shell("rm -rf /"), `action.command.matches("rm\\s+-[rf]+") && action.command.startsWith("rm") && action.command.contains("-rf") && action.command.endsWith("/")`},
		{code("Python", "import os.path"), `action.language == "python" && action.modules == ["os", "os.path"] && action.source.size() == 14 && !action.network`},
		{code("bash", "cd /; git push"), `action.commands.exists(c, c.name == "git" && "push" in c.args) && action.modules == []`},
		{move, `action.type == "File" && action.tool == "file.write" && action.operation == "Move" && action.path == "/a" && action.destination == "/b" && action.commands == []`},
		{full, `action.args.all(a, a.startsWith("-")) && action.args.exists_one(a, a == "-l") && action.args.filter(a, a == "x").size() == 0`},
		{full, `(1 + 2) * 3 - 4 == 5 && 7 % 4 / 3 == 1 && (true ? "a" + "b" : "c") == "ab" && -1 < 1.5`},
	} {
		if v := mustCompile(t, denies(c.expression)).Evaluate(input(t, c.spec)); v.Denial == nil || v.Denial.Reason != v1alpha1.ReasonDeniedByRule {
			t.Errorf("%s: %+v", c.expression, v.Denial)
		}
	}
	v := mustCompile(t, denies(`session != null && session.name == "work" && session.labels["team"] == "a"`)).Evaluate(input(t, full, inSession))
	if v.Denial == nil || v.Denial.Message != `the policy's rule "r" denies the call: no` || denials.FieldOf(v.Denial.Reason, v.Denial.Message) != "spec.rules: r" {
		t.Errorf("in a session: %+v", v.Denial)
	}
	v = mustCompile(t, denies(`caller.username == "" && caller.groups == []`)).Evaluate(input(t, full, func(in *Input) { in.Caller = nil }))
	if v.Denial == nil || v.Denial.Reason != v1alpha1.ReasonDeniedByRule {
		t.Errorf("an unknown caller: %+v", v.Denial)
	}
}

func TestRulesThatDoNotCompile(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"":                              "Syntax error",
		"action.binry == 'x'":           "undefined field 'binry'",
		"acton.binary == 'x'":           "undeclared reference to 'acton'",
		"action.binary":                 "type string",
		"action.args == 'x'":            "no matching overload",
		"call.spec.tool.arguments.x":    "type dyn",
		"1":                             "type int",
		"call.spec.requestedBy != null": "undefined field 'requestedBy'",
		"call.spec.trusted":             "undefined field 'trusted'",
		"toolcall.caller{} == caller":   "makes an object",
		"dyn(action)['x'] == 1":         "undeclared reference to 'dyn'",
		"action.args.map(a, a) == []":   "undeclared reference",
		"action.args.join('') == 'x'":   "undeclared reference to 'join'",
		"action.command.replace('a', 'aaaa') == ''":   "undeclared reference to 'replace'",
		"'%s'.format([action.command]) == ''":         "undeclared reference to 'format'",
		"action.command.split('').size() > 1":         "undeclared reference to 'split'",
		"string(1) == '1'":                            "undeclared reference to 'string'",
		"timestamp('2026-01-01T00:00:00Z') == null":   "undeclared reference",
		"action.command.matches(action.binary)":       "isn't written out",
		"action.command.matches('(')":                 "missing closing",
		"action.command.matches('x{1000}')":           "instructions, and 256 is the limit",
		"action.command.matches('((x{30}){30}){30}')": "invalid",
		"action.args.all(a, action.args.all(b, action.args.all(c, action.args.all(d, action.args.all(e, a + b + c + d == e)))))": "its cost is estimated",
		"action.args.all(a, action.args.all(b, action.args.all(c, a.matches('" + strings.Repeat("(a|b)", 20) + "'))))":           "its cost is estimated",
		strings.Repeat("(", 500) + "true" + strings.Repeat(")", 500):                                                             "recursion",
		strings.Repeat("!", 5000) + "true": "size",
	} {
		_, err := Compile([]v1alpha1.PolicyRule{denies(expression)})
		if err == nil || !strings.HasPrefix(err.Error(), "spec.rules[r]: expression: ") || !strings.Contains(err.Error(), want) || len(err.Error()) > 1500 {
			t.Errorf("%.80s: %v", expression, err)
		}
	}
	for name, rules := range map[string][]v1alpha1.PolicyRule{
		"is not known": {{Name: "r", Expression: "true", Effect: "Warn"}},
		"is empty":     {{Expression: "true", Effect: v1alpha1.RuleDeny}},
		"another rule": {denies("true"), denies("false")},
		"are too many": make([]v1alpha1.PolicyRule, v1alpha1.MaxPolicyRules+1),
	} {
		if _, err := Compile(rules); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever keeps a rule from an answer denies.
func TestRulesThatCanNotBeEvaluated(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 100_000)
	manyArgs := make([]string, 1024)
	for i := range manyArgs {
		manyArgs[i] = "x"
	}
	nested := strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40)
	var names strings.Builder
	names.WriteString(`{"a0":0`)
	for i := range maxElements {
		names.WriteString(`,"a` + strings.Repeat("b", i%40) + strings.Repeat("c", i/40) + `d":0`)
	}
	names.WriteString("}")
	stdin := shell("cat")
	stdin.Stdin = strings.Repeat("é", 200_000)
	tooLong := shell("cat")
	tooLong.Stdin = strings.Repeat("x", maxText+1)
	tool := func(arguments string) v1alpha1.ToolCallSpec {
		return v1alpha1.ToolCallSpec{Tool: &v1alpha1.ToolAction{Name: "bash", Arguments: &runtime.RawExtension{Raw: []byte(`{"command":"ls","x":` + arguments + "}")}}}
	}
	for _, c := range []struct {
		name       string
		spec       v1alpha1.ToolCallSpec
		expression string
		want       string
	}{
		{"a field that isn't set", program("ls"), "call.spec.timeoutSeconds > 5", "no such key: timeoutSeconds"},
		{"a label that isn't there", program("ls"), `environment.labels["x"] == "y"`, "no such key: x"},
		{"an argument that isn't there", program("ls"), `action.args[3] == "y"`, "index"},
		{"no session", program("ls"), `session.name == "x"`, "no such key"},
		{"an overflow", program("ls"), "9223372036854775807 + action.args.size() + 1 == 1", "overflow"},
		{"a division by zero", program("ls"), "1 / action.args.size() == 1", "division by zero"},
		{"a value that isn't a boolean", tool(`"text"`), "call.spec.tool.arguments.x && true", "no such overload"},
		{"types that don't go together", tool(`"text"`), "call.spec.tool.arguments.x > 5", "no such overload"},
		{"a script that bash can't parse", shell("if true"), `action.commands.exists(c, c.name == "git")`, "action.commands isn't known: line 1"},
		{"nested macros over many arguments", program("ls", manyArgs...), "action.args.all(a, action.args.all(b, a == b))", "cost limit exceeded"},
		{"texts that are measured often", stdin, "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, call.spec.stdin.size() > 1))", "cost limit exceeded"},
		{"texts that are compared often", stdin, "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, call.spec.stdin == call.spec.stdin))", "cost limit exceeded"},
		{"texts that are looked up often", stdin, "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, !(call.spec.stdin in call.metadata.labels)))", "cost limit exceeded"},
		{"texts that are joined often", shell(long), "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, action.command + action.command != ''))", "cost limit exceeded"},
		{"texts that are matched often", shell(long), "[1,2,3,4,5,6,7,8,9,10].all(a, !action.command.matches('(a|aa|aaa)+b'))", "cost limit exceeded"},
		{"arguments of a tool that are compared often", tool("[" + strings.Repeat(`"abcdefgh",`, 1000) + `"x"]`),
			"[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, call.spec.tool.arguments == call.spec.tool.arguments)))", "cost limit exceeded"},
		{"a text that is too long", tooLong, "true", "call.spec.stdin has 524289 bytes, and rules read at most 524288"},
		{"a list that is too long", tool("[" + strings.Repeat("1,", maxElements) + "1]"), "true", "call.spec.tool.arguments.x has 1025 elements, and rules read at most 1024"},
		{"a map that is too large", tool(names.String()), "true", "call.spec.tool.arguments.x has 1025 elements"},
		{"values that nest too deeply", tool(nested), "true", "nests deeper than 32 levels"},
	} {
		v := mustCompile(t, denies(c.expression)).Evaluate(input(t, c.spec))
		if v.Denial == nil || v.Denial.Reason != v1alpha1.ReasonGuardError || denials.FieldOf(v.Denial.Reason, v.Denial.Message) != "spec.rules: r" || !strings.Contains(v.Denial.Message, c.want) {
			t.Errorf("%s: %+v", c.name, v.Denial)
		}
		if v.Cost > 2*maxCost+maxText {
			t.Errorf("%s: it cost %d", c.name, v.Cost)
		}
	}
	if v := mustCompile(t, denies(`has(action.commands) && action.commands == []`)).Evaluate(input(t, shell("if true"))); v.Denial != nil {
		t.Errorf("a rule that asks whether the commands are known: %+v", v.Denial)
	}
	if v := mustCompile(t, denies("true")).Evaluate(&Input{}); v.Denial == nil || v.Denial.Reason != v1alpha1.ReasonGuardError {
		t.Errorf("a panic: %+v", v.Denial)
	}
}

func TestEffects(t *testing.T) {
	t.Parallel()
	ask := func(name, expression string) v1alpha1.PolicyRule {
		return v1alpha1.PolicyRule{Name: name, Expression: expression, Effect: v1alpha1.RuleRequireApproval}
	}
	s := mustCompile(t, ask("a", "true"), ask("b", "false"), ask("c", "action.binary == 'ls'"), denies("action.args.size() > 1"))
	v := s.Evaluate(input(t, program("ls")))
	if v.Denial != nil || len(v.Approval) != 2 || v.Approval[0].Name != "a" || v.Approval[1].Name != "c" || v.Cost == 0 {
		t.Errorf("two of three rules ask: %+v", v)
	}
	if v := s.Evaluate(input(t, program("ls", "a", "b"))); v.Denial == nil || v.Denial.Reason != v1alpha1.ReasonDeniedByRule {
		t.Errorf("a denial counts more than rules that ask: %+v", v)
	}
	for name, want := range map[string][2]bool{"a": {true, true}, "r": {true, false}, "x": {false, false}} {
		if isThere, asks := s.AsksForApproval(name); [2]bool{isThere, asks} != want {
			t.Errorf("%s: %t, %t", name, isThere, asks)
		}
	}
	if v := mustCompile(t).Evaluate(nil); v.Denial != nil || v.Approval != nil {
		t.Errorf("no rules: %+v", v)
	}
}

// Many rules that are cheap each are bounded together, for one call and for several.
func TestTheCostOfAllRulesIsBounded(t *testing.T) {
	t.Parallel()
	var rules []v1alpha1.PolicyRule
	for i := range v1alpha1.MaxPolicyRules {
		r := denies("[1,2,3,4,5].exists(x, call.spec.stdin.contains('b'))")
		r.Name += strings.Repeat("x", i)
		rules = append(rules, r)
	}
	spec := shell("cat")
	spec.Stdin = strings.Repeat("a", 500_000)
	s := mustCompile(t, rules...)
	if v := s.Evaluate(input(t, spec)); v.Denial == nil || !strings.Contains(v.Denial.Message, "cost more than 1000000 together") || v.Cost > 2*maxCost {
		t.Errorf("one call: %+v", v)
	}
	limited := s.WithBudget(1000)
	small := input(t, shell("cat"), func(in *Input) { in.Call.Spec.Stdin = "a" })
	for range 10 {
		if v := limited.Evaluate(small); v.Denial != nil && strings.Contains(v.Denial.Message, "all evaluations together") {
			return
		}
	}
	t.Error("the budget of several calls isn't held")
}

func BenchmarkEvaluate(b *testing.B) {
	s, err := Compile([]v1alpha1.PolicyRule{
		denies(`action.commands.exists(c, c.name == "git" && "push" in c.args && c.args.exists(a, a.startsWith("--force")))`),
	})
	if err != nil {
		b.Fatal(err)
	}
	spec := shell("git fetch && git rebase origin/main && make test | tail -n 20")
	action, _ := guards.Map(&spec)
	in := &Input{Call: &v1alpha1.ToolCall{Spec: spec}, Action: action, Environment: &v1alpha1.ExecutionEnvironment{}}
	b.ReportAllocs()
	for b.Loop() {
		if v := s.Evaluate(in); v.Denial != nil {
			b.Fatal(v.Denial.Message)
		}
	}
}

// What a rule may read of what is written shows in what it selects, and not in its texts.
func TestRulesThatReadTheContent(t *testing.T) {
	t.Parallel()
	for expression, reads := range map[string]bool{
		`call.spec.file.content.contains("KEY")`:                                true,
		`has(call.spec.file) && has(call.spec.file.contentBase64)`:              true,
		`(action.path == "a" ? call.spec.file : call.spec.file).content == "x"`: true,
		`call.spec.file == call.spec.file`:                                      true,
		`[call.spec].exists(s, has(s.file) && s.file.content == "x")`:           true,
		`call == call`:                    true,
		`action.path.contains("content")`: false,
		`call.metadata.labels["content"] == "x" || "content" in environment.labels`: false,
		`call.spec.tool.arguments.content == "x"`:                                   false,
		`has(call.spec.file) && call.spec.file.path.startsWith("/content")`:         false,
		`call.spec.env.exists(v, v.name == "content")`:                              false,
	} {
		want := ""
		if reads {
			want = "r"
		}
		if got := mustCompile(t, denies(expression)).OnContent(); got != want {
			t.Errorf("%s: %q, want %q", expression, got, want)
		}
	}
}

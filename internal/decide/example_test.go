package decide_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

func example(name, call string, expect v1alpha1.ExpectedVerdict, reason string) v1alpha1.PolicyExample {
	return v1alpha1.PolicyExample{Name: name, Call: runtime.RawExtension{Raw: []byte(call)}, Expect: expect, Reason: reason}
}

// exemplary is a policy under RBAC that allows shells, denies what pushes by force, and asks about other pushes.
func exemplary(examples ...v1alpha1.PolicyExample) v1alpha1.ExecutionPolicySpec {
	pushes := `action.commands.exists(c, c.name == "git" && "push" in c.args`
	spec := withRules([]v1alpha1.PolicyRule{
		{Name: "force", Expression: pushes + ` && "--force" in c.args)`, Effect: v1alpha1.RuleDeny},
		asks("push", pushes+") && caller.username != 'root' && !('admins' in caller.groups)", ""),
	})
	spec.Access, spec.Examples = v1alpha1.AccessRBAC, examples
	return spec
}

const forcePush = `{"shell":{"command":"git push --force"}}`

func TestExamplesThatAreMet(t *testing.T) {
	t.Parallel()
	root := example("root", `{"shell":{"command":"git push"}}`, v1alpha1.ExpectAllow, "")
	root.Caller = &v1alpha1.ExampleCaller{Username: "root"}
	admins := example("admins", `{"shell":{"command":"git push"}}`, v1alpha1.ExpectAllow, "")
	admins.Caller = &v1alpha1.ExampleCaller{Groups: []string{"admins"}}
	spec := exemplary(
		example("fetch", `{"shell":{"command":"git fetch"}}`, v1alpha1.ExpectAllow, ""),
		example("push", `{"shell":{"command":"git push"}}`, v1alpha1.ExpectApproval, ""),
		example("force", forcePush, v1alpha1.ExpectDeny, ""),
		example("force-reason", forcePush, v1alpha1.ExpectDeny, v1alpha1.ReasonDeniedByRule),
		example("fails", `{"shell":{"command":"if true"}}`, v1alpha1.ExpectDeny, ""),
		example("unparseable", `{"shell":{"command":"if true"}}`, v1alpha1.ExpectDeny, v1alpha1.ReasonGuardError),
		example("tool", `{"tool":{"name":"bash","arguments":{"command":"git push --force"}}}`, v1alpha1.ExpectDeny, ""),
		example("code", `{"code":{"language":"python","source":"print(1)"}}`, v1alpha1.ExpectAllow, ""),
		root, admins,
	)
	if _, err := decide.CompilePolicy(policy("p", spec)); err != nil {
		t.Error(err)
	}
	mustDecide(t, snapshot(under(spec), allowed))
}

func TestNothingRunsUnderAPolicyWhoseExampleFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		example v1alpha1.PolicyExample
		got     string
	}{
		"expects a denial, and is allowed":   {example("e", `{"shell":{"command":"git fetch"}}`, v1alpha1.ExpectDeny, ""), "expects Deny, and comes out as Allow"},
		"expects to run, and is denied":      {example("e", forcePush, v1alpha1.ExpectAllow, ""), `expects Allow, and comes out as Deny (DeniedByRule): the policy's rule "force" denies the call`},
		"expects to run, and needs approval": {example("e", `{"shell":{"command":"git push"}}`, v1alpha1.ExpectAllow, ""), "comes out as RequireApproval"},
		"expects another reason":             {example("e", forcePush, v1alpha1.ExpectDeny, v1alpha1.ReasonShellDisabled), "expects Deny (ShellDisabled), and comes out as Deny (DeniedByRule)"},
		"is denied because a rule fails":     {example("e", `{"shell":{"command":"if true"}}`, v1alpha1.ExpectAllow, ""), "comes out as Deny (GuardError)"},
	} {
		_, err := decide.CompilePolicy(policy("p", exemplary(c.example)))
		var failed *decide.ExamplesFailed
		if !errors.As(err, &failed) || len(failed.Outcomes) != 1 || !strings.Contains(err.Error(), "spec.examples[e] "+c.got) && !strings.Contains(err.Error(), c.got) {
			t.Errorf("%s: %v", name, err)
		}
		if r := refusalOf(t, snapshot(under(exemplary(c.example)), allowed)); r.Reason != v1alpha1.ReasonInvalidPolicy || !strings.Contains(r.Message, "spec.examples[e]") {
			t.Errorf("%s: a call under it: %+v", name, r)
		}
	}
}

func TestExamplesThatCanNotBeJudged(t *testing.T) {
	t.Parallel()
	many := make([]v1alpha1.PolicyExample, v1alpha1.MaxPolicyExamples+1)
	ls := `{"structured":{"binary":"ls"}}`
	for want, examples := range map[string][]v1alpha1.PolicyExample{
		"65 examples are too many":         many,
		"another example has it":           {example("e", ls, v1alpha1.ExpectAllow, ""), example("e", ls, v1alpha1.ExpectAllow, "")},
		`expect: "Maybe" is not known`:     {example("e", ls, "Maybe", "")},
		"only a denial has one":            {example("e", ls, v1alpha1.ExpectAllow, "GuardError")},
		"use at most 16384":                {example("e", `{"stdin":"`+strings.Repeat("x", v1alpha1.MaxExampleBytes)+`"}`, v1alpha1.ExpectAllow, "")},
		`unknown field "shel"`:             {example("e", `{"shel":{"command":"ls"}}`, v1alpha1.ExpectAllow, "")},
		`unknown field "Shell"`:            {example("e", `{"Shell":{"command":"ls"}}`, v1alpha1.ExpectAllow, "")},
		"duplicate field":                  {example("e", `{"stdin":"a","stdin":"b"}`, v1alpha1.ExpectAllow, "")},
		"it is not the spec of a ToolCall": {example("e", "", v1alpha1.ExpectAllow, ""), example("f", "[]", v1alpha1.ExpectAllow, "")},
		"are the example's own":            {example("e", `{"structured":{"binary":"ls"},"environmentRef":{"name":"x"}}`, v1alpha1.ExpectAllow, "")},
	} {
		_, err := decide.CompilePolicy(policy("p", exemplary(examples...)))
		var failed *decide.ExamplesFailed
		if err == nil || errors.As(err, &failed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A policy can't keep the operator busy with its own examples.
func TestTheCostOfExamplesIsBounded(t *testing.T) {
	t.Parallel()
	spec := open()
	spec.Rules = []v1alpha1.PolicyRule{{Name: "slow", Effect: v1alpha1.RuleDeny, Expression: "action.args.exists(a, action.args.exists(b, a != b))"}}
	call := `{"structured":{"binary":"ls","args":["x"` + strings.Repeat(`,"x"`, 400) + `]}}`
	for i := range v1alpha1.MaxPolicyExamples {
		spec.Examples = append(spec.Examples, example("e"+strings.Repeat("x", i), call, v1alpha1.ExpectAllow, ""))
	}
	if _, err := decide.CompilePolicy(policy("p", spec)); err == nil || !strings.Contains(err.Error(), "all evaluations together cost too much") {
		t.Errorf("got %.300v", err)
	}
}

func TestExamplesOfOnePolicyUnderAnother(t *testing.T) {
	t.Parallel()
	examples := exemplary(example("force", forcePush, v1alpha1.ExpectDeny, "")).Examples
	outcomes, err := decide.JudgeExamples(policy("lax", open()), examples)
	if err != nil || len(outcomes) != 1 || outcomes[0].Met || outcomes[0].String() != "Allow" || outcomes[0].Expected() != "Deny" {
		t.Errorf("got %+v, %v", outcomes, err)
	}
}

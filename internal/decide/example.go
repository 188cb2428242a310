package decide

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/celrules"
	"toolcall.dev/operator/internal/guards"
)

// Outcome is what came out for an example of a policy.
type Outcome struct {
	Example *v1alpha1.PolicyExample
	// Verdict is what the policy says. Reason and Message are those of a refusal.
	Verdict         v1alpha1.ExpectedVerdict
	Reason, Message string
	// Met says that the example expects this.
	Met bool
}

// String is the verdict, with the reason where there is one.
func (o *Outcome) String() string {
	if o.Reason == "" {
		return string(o.Verdict)
	}
	return string(o.Verdict) + " (" + o.Reason + ")"
}

// Expected is what the example expects, in the form of String.
func (o *Outcome) Expected() string {
	expected := Outcome{Verdict: o.Example.Expect, Reason: o.Example.Reason}
	return expected.String()
}

// ExamplesFailed says that examples of a policy come out otherwise than they expect: nothing may run under it.
type ExamplesFailed struct{ Outcomes []Outcome }

func (e *ExamplesFailed) Error() string {
	const most = 4
	var parts []string
	for i := range e.Outcomes {
		o := &e.Outcomes[i]
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(e.Outcomes)-most))
			break
		}
		text := fmt.Sprintf("spec.examples[%s] expects %s, and comes out as %s", o.Example.Name, o.Expected(), o)
		if o.Message != "" {
			text += ": " + o.Message
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func failedOf(outcomes []Outcome) error {
	failed := &ExamplesFailed{}
	for i := range outcomes {
		if !outcomes[i].Met {
			failed.Outcomes = append(failed.Outcomes, outcomes[i])
		}
	}
	if len(failed.Outcomes) == 0 {
		return nil
	}
	return failed
}

// JudgeExamples judges the examples of a policy, or of another one under it: what comes out for each, in their order.
func JudgeExamples(object *v1alpha1.ExecutionPolicy, examples []v1alpha1.PolicyExample) ([]Outcome, error) {
	policy, err := compile(object)
	if err != nil {
		return nil, err
	}
	judged := object.DeepCopy()
	judged.Spec.Examples = examples
	return judgeExamples(judged, policy)
}

func judgeExamples(object *v1alpha1.ExecutionPolicy, policy *Policy) ([]Outcome, error) {
	examples := object.Spec.Examples
	if len(examples) > v1alpha1.MaxPolicyExamples {
		return nil, fmt.Errorf("spec.examples: %d examples are too many: use at most %d", len(examples), v1alpha1.MaxPolicyExamples)
	}
	budgeted := *policy
	budgeted.rules = policy.rules.WithBudget(celrules.ExamplesCost)
	names := map[string]bool{}
	var outcomes []Outcome
	for i := range examples {
		example := &examples[i]
		if example.Name == "" || names[example.Name] {
			return nil, fmt.Errorf("spec.examples[%d]: the name %q is empty, or another example has it: give each a name of its own", i, example.Name)
		}
		names[example.Name] = true
		call, err := exampleCall(example)
		if err != nil {
			return nil, fmt.Errorf("spec.examples[%s]: %w", example.Name, err)
		}
		outcomes = append(outcomes, judgeExample(example, call, object, &budgeted))
	}
	return outcomes, nil
}

// exampleCall is the call of an example. The error says what is wrong with it.
func exampleCall(example *v1alpha1.PolicyExample) (*v1alpha1.ToolCall, error) {
	switch {
	case example.Expect != v1alpha1.ExpectAllow && example.Expect != v1alpha1.ExpectDeny && example.Expect != v1alpha1.ExpectApproval:
		return nil, fmt.Errorf("expect: %q is not known: use %s, %s or %s", example.Expect, v1alpha1.ExpectAllow, v1alpha1.ExpectDeny, v1alpha1.ExpectApproval)
	case example.Reason != "" && example.Expect != v1alpha1.ExpectDeny:
		return nil, fmt.Errorf("reason: only a denial has one: leave it out, or expect %s", v1alpha1.ExpectDeny)
	case len(example.Call.Raw) > v1alpha1.MaxExampleBytes:
		return nil, fmt.Errorf("call: it has %d bytes: use at most %d", len(example.Call.Raw), v1alpha1.MaxExampleBytes)
	}
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "example", Name: example.Name}}
	unknown, err := json.UnmarshalStrict(example.Call.Raw, &call.Spec)
	if err := errors.Join(append(unknown, err)...); err != nil {
		return nil, fmt.Errorf("call: it is not the spec of a ToolCall: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	spec := &call.Spec
	if spec.EnvironmentRef != nil || spec.SessionRef != nil || spec.SkillRef != nil || spec.RequestedBy != nil {
		return nil, errors.New("call: environmentRef, sessionRef, skillRef and requestedBy are the example's own: leave them out, and use caller")
	}
	spec.RequestedBy = &v1alpha1.Requester{Username: "example"}
	if caller := example.Caller; caller != nil {
		if caller.Username != "" {
			spec.RequestedBy.Username = caller.Username
		}
		spec.RequestedBy.Groups = caller.Groups
	}
	return call, nil
}

// judgeExample decides about the call of an example, as in an environment that has an interpreter for its language.
func judgeExample(example *v1alpha1.PolicyExample, call *v1alpha1.ToolCall, object *v1alpha1.ExecutionPolicy, policy *Policy) Outcome {
	env := &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: call.Namespace, Name: "example"},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{PolicyRef: &v1alpha1.PolicyReference{Name: object.Name}},
	}
	if action, _ := guards.Map(&call.Spec); action != nil && action.Language != "" {
		env.Spec.Interpreters = map[string]v1alpha1.CommandPrefix{action.Language: {action.Language}}
	}
	decision, err := Decide(&Snapshot{
		Call:      call,
		Context:   Context{Named: env},
		Policies:  Policies{Named: object, Defaults: []v1alpha1.ExecutionPolicy{*object}},
		Compile:   func(*v1alpha1.ExecutionPolicy) (*Policy, error) { return policy, nil },
		Requester: Requester{Vouched: true},
		Access:    Access{Allowed: true},
	})
	o := Outcome{Example: example}
	o.Verdict, o.Reason, o.Message = VerdictOf(decision, err)
	o.Met = o.Verdict == example.Expect && (example.Reason == "" || example.Reason == o.Reason)
	return o
}

// VerdictOf is what Decide says about a call in the words of an example, with the reason and the message of a refusal.
func VerdictOf(decision *Decision, err error) (verdict v1alpha1.ExpectedVerdict, reason, message string) {
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		return v1alpha1.ExpectDeny, refusal.Reason, refusal.Message
	case err != nil:
		return v1alpha1.ExpectDeny, v1alpha1.ReasonGuardError, err.Error()
	case decision.Approval != nil:
		return v1alpha1.ExpectApproval, "", ""
	default:
		return v1alpha1.ExpectAllow, "", ""
	}
}

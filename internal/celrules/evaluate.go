package celrules

import (
	"fmt"

	"github.com/google/cel-go/common/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/denials"
	"toolcall.dev/operator/internal/guards"
)

// Verdict is what the rules say about a call.
type Verdict struct {
	// Denial is that of the first rule that denies, or that can't be evaluated; nil for none.
	Denial *guards.Denial
	// Approval are the rules that are true and ask for approval.
	Approval []*v1alpha1.PolicyRule
	// Cost is what all evaluations took.
	Cost uint64
}

// Evaluate evaluates the rules in their order, up to one that denies.
func (s *Set) Evaluate(in *Input) (v Verdict) {
	if len(s.rules) == 0 {
		return v
	}
	current := s.rules[0].Name
	defer func() {
		if recover() != nil {
			v.Denial = failed(current, "evaluating it failed")
		}
	}()
	if s.budget != nil && *s.budget == 0 {
		v.Denial = failed(current, overBudget)
		return v
	}
	variables, absent, err := s.variables(in)
	if err != nil {
		v.Denial = failed(current, err.Error())
		return v
	}
	for i := range s.rules {
		r := &s.rules[i]
		current = r.Name
		isTrue, cost, err := r.evaluate(variables)
		v.Cost += cost
		switch overspent := s.spend(cost); {
		case overspent:
			v.Denial = failed(r.Name, overBudget)
		case err == nil && v.Cost > maxCost:
			v.Denial = failed(r.Name, fmt.Sprintf("it and the rules before it cost more than %d together", maxCost))
		case err != nil:
			v.Denial = failed(r.Name, err.Error()+absent)
		case isTrue && r.Effect == v1alpha1.RuleDeny:
			v.Denial = denied(r)
		case isTrue:
			v.Approval = append(v.Approval, &r.PolicyRule)
		}
		if v.Denial != nil {
			return v
		}
	}
	return v
}

const overBudget = "all evaluations together cost too much"

// spend takes a cost from the budget. It says whether there isn't as much.
func (s *Set) spend(cost uint64) (overspent bool) {
	if s.budget == nil {
		return false
	}
	overspent = cost > *s.budget
	*s.budget -= min(cost, *s.budget)
	return overspent
}

// evaluate says whether a rule is true.
func (r *rule) evaluate(variables map[string]any) (isTrue bool, cost uint64, err error) {
	value, details, err := r.program.Eval(variables)
	cost = maxCost
	if details != nil && details.ActualCost() != nil {
		cost = *details.ActualCost()
	}
	if err != nil {
		return false, cost, err
	}
	answer, ok := value.(types.Bool)
	if !ok {
		return false, cost, fmt.Errorf("it gave a value of the type %s, and not a boolean", value.Type().TypeName())
	}
	return bool(answer), cost, nil
}

func denied(r *rule) *guards.Denial {
	message := denials.ByRule(r.Name) + " denies the call"
	if r.Message != "" {
		message += ": " + r.Message
	} else {
		message += ": it is true for " + r.Expression
	}
	return &guards.Denial{Reason: v1alpha1.ReasonDeniedByRule, Message: message}
}

func failed(rule, why string) *guards.Denial {
	return &guards.Denial{
		Reason:  v1alpha1.ReasonGuardError,
		Message: fmt.Sprintf("%s could not be evaluated: %s; the call is denied to be safe", denials.ByRule(rule), oneLine(why)),
	}
}

package celrules

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"toolcall.dev/operator/api/v1alpha1"
)

const (
	// maxExpression bounds an expression, in characters, and maxNesting how deep it nests.
	maxExpression = 4096
	maxNesting    = 64
	// maxPattern bounds the program of a pattern, in instructions: each may be tried at each byte of a text.
	maxPattern = 256
)

// Set are the compiled rules of a policy. Without a budget it never changes and is safe for concurrent use.
type Set struct {
	rules []rule
	// commands and modules say that an expression reads them: to find them takes long.
	commands, modules bool
	// budget is what evaluations may still cost together; nil for no such bound.
	budget *uint64
}

// WithBudget is the set for evaluations, one after the other, that may cost no more than so much together.
func (s *Set) WithBudget(cost uint64) *Set {
	limited := *s
	limited.budget = &cost
	return &limited
}

type rule struct {
	v1alpha1.PolicyRule
	program cel.Program
	// content says that the expression reads what a file action writes, or may.
	content bool
}

// Compile compiles the rules of a policy. The error names the rule and says what is wrong about it. It doesn't rely on the API's schema.
func Compile(list []v1alpha1.PolicyRule) (*Set, error) {
	if len(list) > v1alpha1.MaxPolicyRules {
		return nil, fmt.Errorf("spec.rules: %d rules are too many: use at most %d", len(list), v1alpha1.MaxPolicyRules)
	}
	s := &Set{}
	names := map[string]bool{}
	for i := range list {
		r := &list[i]
		if r.Name == "" || names[r.Name] {
			return nil, fmt.Errorf("spec.rules[%d]: the name %q is empty, or another rule has it: give each rule a name of its own", i, r.Name)
		}
		names[r.Name] = true
		compiled, err := compile(r)
		if err != nil {
			return nil, fmt.Errorf("spec.rules[%s]: %w", r.Name, err)
		}
		s.rules = append(s.rules, *compiled)
		// A name that an expression reads stands in it as it is: CEL has no escapes outside of texts.
		s.commands = s.commands || strings.Contains(r.Expression, "commands")
		s.modules = s.modules || strings.Contains(r.Expression, "modules")
	}
	return s, nil
}

// AsksForApproval says whether there is a rule of the name, and whether it asks for approval.
func (s *Set) AsksForApproval(name string) (isThere, asks bool) {
	for i := range s.rules {
		if s.rules[i].Name == name {
			return true, s.rules[i].Effect == v1alpha1.RuleRequireApproval
		}
	}
	return false, false
}

// OnContent is the name of the first rule that reads what a file action writes, or may; empty for none.
func (s *Set) OnContent() string {
	for i := range s.rules {
		if s.rules[i].content {
			return s.rules[i].Name
		}
	}
	return ""
}

func compile(r *v1alpha1.PolicyRule) (*rule, error) {
	if r.Effect != v1alpha1.RuleDeny && r.Effect != v1alpha1.RuleRequireApproval {
		return nil, fmt.Errorf("effect: %q is not known: use %s or %s", r.Effect, v1alpha1.RuleDeny, v1alpha1.RuleRequireApproval)
	}
	e, err := celEnv()
	if err != nil {
		return nil, fmt.Errorf("make the environment of expressions: %w", err)
	}
	checked, issues := e.Compile(r.Expression)
	if issues.Err() != nil {
		return nil, fmt.Errorf("expression: %s (rules have the functions size, contains, startsWith, endsWith and matches, and the macros %s)",
			oneLine(issues.Err().Error()), strings.Join(macros(), ", "))
	}
	if got := checked.OutputType(); !got.IsExactType(types.BoolType) {
		return nil, fmt.Errorf("expression: it is of the type %s: write one that is true or false", got)
	}
	patterns, err := patternsOf(checked.NativeRep().Expr())
	if err != nil {
		return nil, fmt.Errorf("expression: %w", err)
	}
	cost, err := e.EstimateCost(checked, estimator{})
	if err != nil {
		return nil, fmt.Errorf("expression: estimate its cost: %w", err)
	}
	if cost.Max > maxCost {
		return nil, fmt.Errorf("expression: its cost is estimated as %d for lists of %d elements, and %d is the limit: nest fewer macros, or write shorter patterns", cost.Max, usualElements, maxCost)
	}
	program, err := e.Program(checked, cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost), cel.CostTracking(tracker{patterns}), cel.CostLimit(maxCost))
	return &rule{PolicyRule: *r, program: program, content: readsContent(checked.NativeRep())}, err
}

// readsContent says that an expression selects the content of a file action, or has the action, or what it is part of, for more than to
// select another field: nobody follows where such a value goes.
func readsContent(checked *ast.AST) bool {
	reads := func(e ast.NavigableExpr) bool {
		selects := ""
		if parent, ok := e.Parent(); ok && parent.Kind() == ast.SelectKind {
			selects = parent.AsSelect().FieldName()
		}
		switch e.Type().TypeName() {
		case objectPrefix + fileType:
			return selects == "" || strings.HasPrefix(selects, "content")
		case objectPrefix + varCall, objectPrefix + specType:
			return selects == ""
		default:
			return false
		}
	}
	return len(ast.MatchDescendants(ast.NavigateAST(checked), reads)) > 0
}

// patternsOf are the patterns that an expression matches, which have to be written out, with the size of the program of each.
func patternsOf(root ast.Expr) (map[string]uint64, error) {
	patterns := map[string]uint64{}
	var failed error
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.StructKind {
			failed = errors.New("it makes an object: compare fields instead")
		}
		if failed != nil || e.Kind() != ast.CallKind || e.AsCall().FunctionName() != "matches" {
			return
		}
		args := e.AsCall().Args()
		last := args[len(args)-1]
		pattern, isText := types.String(""), false
		if last.Kind() == ast.LiteralKind {
			pattern, isText = last.AsLiteral().(types.String)
		}
		if !isText {
			failed = errors.New("the pattern of matches isn't written out: write it as a text")
			return
		}
		patterns[string(pattern)], failed = programSize(string(pattern))
	}))
	return patterns, failed
}

// programSize is how many instructions a pattern takes.
func programSize(pattern string) (uint64, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("the pattern %q: %w", pattern, err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, fmt.Errorf("the pattern %q: %w", pattern, err)
	}
	if n := len(program.Inst); n > maxPattern {
		return 0, fmt.Errorf("the pattern %q takes %d instructions, and %d is the limit: write a shorter one, with fewer repetitions", pattern, n, maxPattern)
	}
	return uint64(len(program.Inst)), nil
}

// oneLine is a message of CEL without the lines that show the expression.
func oneLine(message string) string {
	var lines []string
	for line := range strings.Lines(message) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "|") {
			lines = append(lines, strings.TrimPrefix(line, "ERROR: <input>:"))
		}
	}
	const most = 3
	if len(lines) > most {
		lines = append(lines[:most], "…")
	}
	return strings.Join(lines, "; ")
}

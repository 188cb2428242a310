package convert

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// MaxSourceBytes bounds the document. The time that the TOML library takes is quadratic in the number of keys in one
// table: with this bound it is a few seconds at worst.
const MaxSourceBytes = 512 << 10

// DefaultPolicyName is the name of the policy if the options have none.
const DefaultPolicyName = "converted"

// Flags of kubectl toolcall convert that remarks mention.
const (
	FlagImage           = "--image"
	FlagNamespace       = "--namespace"
	FlagPolicyName      = "--policy-name"
	FlagEnvironmentsKey = "--environments-key"
	FlagPolicyKey       = "--policy-key"
)

// Options are what the document doesn't have.
type Options struct {
	// Namespace of the environments. If it is empty, the manifests have none.
	Namespace string
	// Image of all environments, required if there are any.
	Image string
	// PolicyName of the policy, or of an existing policy if the document has no limits.
	PolicyName string
	// EnvironmentsKey and PolicyKey are the keys of the tables, e.g. execution.environments. If they are empty, the
	// conversion finds the tables by their keys.
	EnvironmentsKey, PolicyKey string
}

// Result is the outcome of a conversion.
type Result struct {
	// Manifests is YAML, one document for each object. It is empty if a remark is an error.
	Manifests []byte
	Remarks   []Remark
}

// Convert converts a document. The error is ErrNotConverted if the remarks say why. Otherwise it is about the document
// as a whole, with line and column.
func Convert(source []byte, options Options) (Result, error) {
	values, err := parse(source)
	if err != nil {
		return Result{}, err
	}
	c := &converter{
		options: options,
		root:    table{&location{}, values},
		usage:   usage{whole: map[string]bool{}, part: map[string]bool{}},
	}
	objects := c.run()
	remarks := c.finish()
	if c.failed {
		return Result{Remarks: remarks}, ErrNotConverted
	}
	manifests, err := render(objects)
	return Result{Manifests: manifests, Remarks: remarks}, err
}

func parse(source []byte) (map[string]any, error) {
	if len(source) > MaxSourceBytes {
		return nil, fmt.Errorf("the document is longer than %d bytes", MaxSourceBytes)
	}
	var values map[string]any
	err := toml.Unmarshal(source, &values)
	var syntax *toml.DecodeError
	if errors.As(err, &syntax) {
		line, column := syntax.Position()
		return nil, fmt.Errorf("line %d, column %d: %s", line, column, strings.TrimPrefix(syntax.Error(), "toml: "))
	}
	return values, err
}

// converter is the state of one conversion.
type converter struct {
	options Options
	root    table
	usage   usage
	report

	// policyTable is the table of the limits, elements are the tables of the environments.
	policyTable *location
	elements    map[string]bool
	blocklist   []string
}

func (c *converter) run() []any {
	c.checkOptions()
	f := &finder{}
	f.walk(c.root, 0)
	environments, err := choose("the environments", FlagEnvironmentsKey, c.options.EnvironmentsKey, f.environments)
	if err != nil {
		c.fail(c.root.at, "%s", err)
	}
	policies := withoutElements(f.policies, environments)
	limits, err := choose("the limits", FlagPolicyKey, c.options.PolicyKey, policies)
	if err != nil {
		c.fail(c.root.at, "%s", err)
	}
	if environments == nil && limits == nil && !c.failed {
		c.fail(c.root.at, "found neither a table array of environments (with %s, %s, %s) nor a table with one of %s",
			keyName, keyCwd, keyEnv, strings.Join(policyKeys, ", "))
	}
	var objects []any
	if policy := c.policy(limits); policy != nil {
		objects = append(objects, policy)
	}
	for _, environment := range c.environments(environments, c.defaultName(f, environments)) {
		objects = append(objects, environment)
	}
	c.remarkUnused(policies, limits)
	return objects
}

// withoutElements removes the tables of environments: a limit in one of them is an unknown key.
func withoutElements(policies []candidate, environments *candidate) []candidate {
	if environments == nil {
		return policies
	}
	var others []candidate
	for _, p := range policies {
		if !strings.HasPrefix(p.at.text, environments.at.text+"[") {
			others = append(others, p)
		}
	}
	return others
}

// remarkUnused warns about unknown keys in the converted tables and about limits in other tables. The rest of the
// document belongs to other programs and gets one note.
func (c *converter) remarkUnused(policies []candidate, limits *candidate) {
	for _, p := range policies {
		if limits != nil && p.at.text != limits.at.text {
			c.warn(p.at, "has limits too, which are not converted: only those of %s are (select with %s)", limits.at, FlagPolicyKey)
			c.usage.mark(p.at)
		}
	}
	var others []string
	more := 0
	c.usage.unused(c.root, func(parent, at *location) {
		inPolicy := c.policyTable != nil && c.policyTable.text == parent.text && parent.text != ""
		switch {
		case inPolicy || c.elements[parent.text]:
			c.warn(at, "unknown key: left out")
		case len(others) < 16:
			others = append(others, at.text)
		default:
			more++
		}
	})
	if more > 0 {
		others = append(others, fmt.Sprintf("%d more", more))
	}
	if len(others) > 0 {
		c.note(c.root.at, "not converted: %s", strings.Join(others, ", "))
	}
}

func (c *converter) checkOptions() {
	if ns := c.options.Namespace; ns != "" && !isLabel(ns) {
		c.fail(c.root.at, "%s=%s is not a valid namespace name: use %s", FlagNamespace, quote(ns), labelRule)
	}
	if name := c.options.PolicyName; name != "" && !isSubdomain(name) {
		c.fail(c.root.at, "%s=%s is not a valid object name: use %s, in parts separated by dots", FlagPolicyName, quote(name), labelRule)
	}
}

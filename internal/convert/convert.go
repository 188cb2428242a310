package convert

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// MaxSourceBytes is the longest document that is read. The TOML library takes time by the square of the number of
// keys in one table: this much is a few seconds at worst, and far more than anyone writes.
const MaxSourceBytes = 512 << 10

// DefaultPolicyName is the policy's name when the user gives none.
const DefaultPolicyName = "converted"

// Flags that remarks tell the user to set.
const (
	FlagImage           = "--image"
	FlagNamespace       = "--namespace"
	FlagPolicyName      = "--policy-name"
	FlagEnvironmentsKey = "--environments-key"
	FlagPolicyKey       = "--policy-key"
)

// Options are what the document doesn't say.
type Options struct {
	// Namespace of the environments; none is written when empty.
	Namespace string
	// Image of all environments, required when there are any.
	Image string
	// PolicyName of the policy, or of one that exists when the document holds no limits.
	PolicyName string
	// EnvironmentsKey and PolicyKey say where the tables stand, e.g. execution.environments; found by their
	// shape when empty.
	EnvironmentsKey, PolicyKey string
}

// Result is what a document became.
type Result struct {
	// Manifests is YAML, one document per object; empty when a remark is an error.
	Manifests []byte
	Remarks   []Remark
}

// Convert reads a document. The error is ErrNotConverted when the remarks tell why, else it says what is
// wrong with the document as a whole, with line and column.
func Convert(source []byte, options Options) (Result, error) {
	values, err := parse(source)
	if err != nil {
		return Result{}, err
	}
	c := &converter{
		options: options,
		root:    table{&place{}, values},
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

// converter carries one document through the steps.
type converter struct {
	options Options
	root    table
	usage   usage
	report

	// policyTable is the table that the policy was made from, elements those of the environments.
	policyTable *place
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
		c.fail(c.root.at, "found neither a table array of environments (%s, %s, %s) nor a table with one of %s",
			keyName, keyCwd, keyEnv, strings.Join(policyKeys, ", "))
	}
	var objects []any
	if policy := c.policy(limits); policy != nil {
		objects = append(objects, policy)
	}
	for _, environment := range c.environments(environments, c.defaultName(f, environments)) {
		objects = append(objects, environment)
	}
	c.mentionUnused(policies, limits)
	return objects
}

// withoutElements leaves out the environments themselves: a limit in one of them is an unknown key there.
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

// mentionUnused warns about keys in the tables that were read, and about limits in tables that weren't;
// the rest of the document is other programs' business and gets one note.
func (c *converter) mentionUnused(policies []candidate, limits *candidate) {
	for _, p := range policies {
		if limits != nil && p.at.text != limits.at.text {
			c.warn(p.at, "holds limits too, which were not carried over: only those of %s were (%s chooses)", limits.at, FlagPolicyKey)
			c.usage.mark(p.at)
		}
	}
	var others []string
	more := 0
	c.usage.unused(c.root, func(parent, at *place) {
		inPolicy := c.policyTable != nil && c.policyTable.text == parent.text && parent.text != ""
		switch {
		case inPolicy || c.elements[parent.text]:
			c.warn(at, "unknown key: not carried over")
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
		c.note(c.root.at, "not looked at: %s", strings.Join(others, ", "))
	}
}

func (c *converter) checkOptions() {
	if ns := c.options.Namespace; ns != "" && !isLabel(ns) {
		c.fail(c.root.at, "%s=%s is no namespace's name: it takes %s", FlagNamespace, quote(ns), labelRule)
	}
	if name := c.options.PolicyName; name != "" && !isSubdomain(name) {
		c.fail(c.root.at, "%s=%s is no object's name: it takes %s, in parts separated by dots", FlagPolicyName, quote(name), labelRule)
	}
}

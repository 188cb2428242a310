package convert

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/runtime"
)

// MaxSourceBytes bounds the document. The time that the TOML library takes is quadratic in the number of keys in one
// table: with this bound it is a few seconds at worst.
const MaxSourceBytes = 512 << 10

// DefaultPolicyName is the name of the policy if the options have none.
const DefaultPolicyName = "converted"

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
	// Remarks are lines for the user, each about one key. The errors come last.
	Remarks []string
}

// ErrNotConverted means that at least one remark is an error.
var ErrNotConverted = errors.New("nothing was converted: see the errors above")

// Convert converts a document. The error is ErrNotConverted if the remarks say why. Otherwise it is about the document
// as a whole, with line and column.
func Convert(source []byte, options Options) (Result, error) {
	values, err := parse(source)
	if err != nil {
		return Result{}, err
	}
	c := &converter{options: options}
	objects := c.run(table{values: values})
	result := Result{Remarks: append(c.remarks, c.errors...)}
	if len(c.errors) > 0 {
		return result, ErrNotConverted
	}
	result.Manifests, err = render(objects)
	return result, err
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
	options         Options
	remarks, errors []string
	// hasPolicy says that the document has limits, blocklist are the prefixes of variables that its policy blocks.
	hasPolicy bool
	blocklist []string
}

func (c *converter) note(where, format string, args ...any) {
	c.remarks = append(c.remarks, "note: "+where+": "+fmt.Sprintf(format, args...))
}

func (c *converter) warn(where, format string, args ...any) {
	c.remarks = append(c.remarks, "warning: "+where+": "+fmt.Sprintf(format, args...))
}

func (c *converter) fail(where, format string, args ...any) {
	c.errors = append(c.errors, "error: "+where+": "+fmt.Sprintf(format, args...))
}

func (c *converter) run(root table) []any {
	found := search(root)
	environments := c.choose("the environments", "--environments-key", c.options.EnvironmentsKey, found.environments)
	limits := c.choose("the limits", "--policy-key", c.options.PolicyKey, outside(found.limits, environments))
	if environments == nil && limits == nil && len(c.errors) == 0 {
		c.fail(root.String(), "found neither a table array of environments (with %s, %s, %s) nor a table with one of %s",
			keyName, keyCwd, keyEnv, strings.Join(policyKeys, ", "))
	}
	if c.options.PolicyName == "" {
		c.blocklist = builtInBlocklist
	}
	var objects []any
	if limits != nil {
		objects = append(objects, c.policy(limits.tables[0]))
	}
	for _, environment := range c.environments(environments, outside(found.defaults, environments)) {
		objects = append(objects, environment)
	}
	return objects
}

// render writes the objects as YAML, one document each, without what is empty.
func render(objects []any) ([]byte, error) {
	var documents [][]byte
	for _, object := range objects {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("encode the manifests: %w", err)
		}
		delete(fields, "status")
		spec, _ := fields["spec"].(map[string]any)
		for name, value := range spec {
			if inner, ok := value.(map[string]any); ok && len(inner) == 0 {
				delete(spec, name)
			}
		}
		document, err := yaml.Marshal(fields)
		if err != nil {
			return nil, fmt.Errorf("encode the manifests: %w", err)
		}
		documents = append(documents, document)
	}
	return bytes.Join(documents, []byte("---\n")), nil
}

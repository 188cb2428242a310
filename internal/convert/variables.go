package convert

import (
	"fmt"
	"regexp"
	"strings"

	"toolcall.dev/operator/api/v1alpha1"
)

// Bounds of the API.
const (
	maxVariables     = 256
	maxVariableName  = 256
	maxVariableValue = 131072
)

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	secretName   = regexp.MustCompile(`(?i)KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL`)
)

// variables converts the env of an environment.
func (c *converter) variables(t table) []v1alpha1.EnvVar {
	value, ok := t.values[keyEnv]
	if !ok {
		return nil
	}
	at := t.at.key(keyEnv)
	c.usage.mark(at)
	values, ok := value.(map[string]any)
	if !ok {
		c.fail(at, "must be a table of names and values")
		return nil
	}
	if len(values) > maxVariables {
		c.fail(at, "has %d variables, more than the limit of %d", len(values), maxVariables)
		return nil
	}
	var made []v1alpha1.EnvVar
	size := 0
	env := table{at, values}
	for _, name := range env.keys() {
		text, ok := c.variable(env, name)
		if !ok {
			continue
		}
		made = append(made, v1alpha1.EnvVar{Name: name, Value: text})
		size += len(name) + len(text)
	}
	if size > v1alpha1.MaxEnvBytes {
		c.fail(at, "has %d bytes of names and values, more than the limit of %d", size, v1alpha1.MaxEnvBytes)
	}
	return made
}

// variable converts one variable. It returns false for a variable that is left out.
func (c *converter) variable(env table, name string) (string, bool) {
	at := env.at.key(name)
	if !variableName.MatchString(name) || len(name) > maxVariableName {
		c.warn(at, "left out: a variable name has letters, digits and underscores, doesn't start with a digit, and has at most %d characters", maxVariableName)
		return "", false
	}
	text, ok := c.scalar(at, env.values[name])
	switch {
	case !ok:
		return "", false
	case strings.ContainsRune(text, 0):
		c.warn(at, "left out: its value contains a NUL byte")
		return "", false
	case len(text) > maxVariableValue:
		c.warn(at, "left out: its value is longer than %d bytes", maxVariableValue)
		return "", false
	}
	if text != "" && secretName.MatchString(name) {
		c.warn(at, "looks like a secret that anybody who can read the manifest can read: move it to a Secret, and replace value with valueFrom.secretKeyRef")
	}
	for _, prefix := range c.blocklist {
		if strings.HasPrefix(name, prefix) {
			c.warn(at, "starts with %s, which the policy blocks: only trusted calls get it", quote(prefix))
			break
		}
	}
	return text, true
}

// scalar reads a string, or a value with only one form as a string.
func (c *converter) scalar(at *location, value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool, int64:
		c.warn(at, "not a string: converted to one")
		return fmt.Sprint(v), true
	default:
		c.warn(at, "left out: the value of a variable must be a string")
		return "", false
	}
}

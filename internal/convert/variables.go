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

// variables reads an environment's env.
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
		c.fail(at, "holds %d variables, over the limit of %d", len(values), maxVariables)
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
		c.fail(at, "holds %d bytes of names and values, over the limit of %d", size, v1alpha1.MaxEnvBytes)
	}
	return made
}

// variable reads one; false when it is left out.
func (c *converter) variable(env table, name string) (string, bool) {
	at := env.at.key(name)
	if !variableName.MatchString(name) || len(name) > maxVariableName {
		c.warn(at, "left out: a variable's name is letters, digits and underscores, doesn't start with a digit, and is at most %d long", maxVariableName)
		return "", false
	}
	text, ok := c.scalar(at, env.values[name])
	switch {
	case !ok:
		return "", false
	case strings.ContainsRune(text, 0):
		c.warn(at, "left out: its value holds a NUL byte")
		return "", false
	case len(text) > maxVariableValue:
		c.warn(at, "left out: its value is longer than %d bytes", maxVariableValue)
		return "", false
	}
	if text != "" && secretName.MatchString(name) {
		c.warn(at, "looks like a secret, and stands in the manifest for everyone to read: keep it in a Secret and replace value by valueFrom.secretKeyRef")
	}
	for _, prefix := range c.blocklist {
		if strings.HasPrefix(name, prefix) {
			c.warn(at, "starts with %s, which the policy blocks: only trusted calls will get it", quote(prefix))
			break
		}
	}
	return text, true
}

// scalar reads a string, and what can be written as one without doubt.
func (c *converter) scalar(at *place, value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool, int64:
		c.warn(at, "isn't a string: written as one")
		return fmt.Sprint(v), true
	default:
		c.warn(at, "left out: a variable's value is a string")
		return "", false
	}
}

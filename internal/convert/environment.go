package convert

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"toolcall.dev/operator/api/v1alpha1"
)

// environments converts each element. The policy must be converted before.
func (c *converter) environments(from *candidate, defaults []candidate) []*v1alpha1.ExecutionEnvironment {
	defaultName := c.defaultName(defaults)
	if from == nil {
		if defaultName != "" {
			c.fail(keyDefaultEnv, "names %q, but there are no environments", defaultName)
		}
		return nil
	}
	c.note(from.path, "converted to ExecutionEnvironments: %d", len(from.tables))
	if c.options.Image == "" {
		c.fail(from.path, "an environment needs an image: set it with --image")
	}
	var made []*v1alpha1.ExecutionEnvironment
	taken, hasDefault := map[string]bool{}, false
	for _, t := range from.tables {
		name, ok := t.values[keyName].(string)
		label := labelOf(name)
		switch {
		case !ok || name == "":
			c.fail(t.at(keyName), "an environment needs a name, as a string")
		case len(validation.IsDNS1123Label(label)) > 0 || taken[label]:
			c.fail(t.at(keyName), "%q can't be made a Kubernetes name of its own: rename it", name)
		case label != name:
			c.warn(t.at(keyName), "%q is not a valid Kubernetes name: it becomes %s, and calls must use that name", name, label)
		}
		isDefault := name != "" && name == defaultName
		taken[label], hasDefault = true, hasDefault || isDefault
		made = append(made, c.environment(t, label, isDefault))
	}
	switch {
	case defaultName == "":
		c.note(from.path, "there is no %s: a call that names no environment fails", keyDefaultEnv)
	case !hasDefault:
		c.fail(from.path, "%s names %q, which is not one of the environments", keyDefaultEnv, defaultName)
	}
	return made
}

// defaultName is the name of the default environment, which one table may have.
func (c *converter) defaultName(defaults []candidate) string {
	if len(defaults) == 0 {
		return ""
	}
	t := defaults[0].tables[0]
	if len(defaults) > 1 {
		c.fail(t.at(keyDefaultEnv), "is set in %s too: keep one of them", defaults[1].tables[0])
	}
	name, _ := value[string](c, t, keyDefaultEnv, "a string: the name of an environment")
	return name
}

var notLabel = regexp.MustCompile(`[^a-z0-9]+`)

// labelOf turns a name into one for Kubernetes. It can be the same for several names, or empty.
func labelOf(name string) string {
	if len(validation.IsDNS1123Label(name)) == 0 {
		return name
	}
	return strings.Trim(notLabel.ReplaceAllString(strings.ToLower(name), "-"), "-")
}

func (c *converter) environment(t table, name string, isDefault bool) *v1alpha1.ExecutionEnvironment {
	out := &v1alpha1.ExecutionEnvironment{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ExecutionEnvironment"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.options.Namespace},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: c.options.Image},
	}
	if c.hasPolicy || c.options.PolicyName != "" {
		out.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: c.policyName()}
	}
	if isDefault {
		out.Annotations = map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"}
	}
	out.Spec.WorkingDir, out.Spec.AllowedPaths = c.workingDir(t)
	out.Spec.Env = c.variables(t)
	for _, key := range t.foreign(environmentKeys...) {
		c.warn(t.at(key), "unknown key: left out")
	}
	return out
}

// defaultAllowed are the directories that every environment allows, besides the working directory of its image.
var defaultAllowed = []string{"/workspace", "/tmp"}

// workingDir converts cwd. The author of an environment is trusted, so the directory becomes an allowed path.
func (c *converter) workingDir(t table) (dir string, allowed []string) {
	dir, _ = value[string](c, t, keyCwd, "a string")
	at := t.at(keyCwd)
	switch {
	case dir == "":
		return "", nil
	case strings.HasPrefix(dir, "~") || strings.Contains(dir, "$"):
		c.warn(at, "left out: a working directory is not expanded, so %q would never be found", dir)
		return "", nil
	case !strings.HasPrefix(dir, "/"):
		c.warn(at, "%q is relative to the working directory of the image", dir)
		return dir, nil
	case isAllowed(path.Clean(dir)):
		return dir, nil
	}
	c.warn(at, "%q must exist in the image or be mounted; allowedPaths lists it instead of the working directory of the image", dir)
	return dir, append(slices.Clone(defaultAllowed), path.Clean(dir))
}

// isAllowed reports whether a clean path is in a directory that is allowed by default.
func isAllowed(dir string) bool {
	return slices.ContainsFunc(defaultAllowed, func(root string) bool {
		return dir == root || strings.HasPrefix(dir, root+"/")
	})
}

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	secretName   = regexp.MustCompile(`(?i)KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL`)
)

// variables converts the env of an environment.
func (c *converter) variables(t table) (made []v1alpha1.EnvVar) {
	values, _ := value[map[string]any](c, t, keyEnv, "a table of names and values")
	env := table{t.at(keyEnv), values}
	for _, name := range env.foreign() {
		if text, ok := c.variable(env, name); ok {
			made = append(made, v1alpha1.EnvVar{Name: name, Value: text})
		}
	}
	return made
}

// variable converts one variable. It returns false for a variable that is left out.
func (c *converter) variable(env table, name string) (text string, ok bool) {
	at := env.at(name)
	if !variableName.MatchString(name) {
		c.warn(at, "left out: a variable name has letters, digits and underscores, and doesn't start with a digit")
		return "", false
	}
	switch v := env.values[name].(type) {
	case string:
		text = v
	case bool, int64:
		text = fmt.Sprint(v)
		c.warn(at, "not a string: converted to one")
	default:
		c.warn(at, "left out: the value of a variable must be a string")
		return "", false
	}
	if strings.ContainsRune(text, 0) {
		c.warn(at, "left out: its value contains a NUL byte")
		return "", false
	}
	if text != "" && secretName.MatchString(name) {
		c.warn(at, "looks like a secret that anybody who can read the manifest can read: move it to a Secret, and replace value with valueFrom.secretKeyRef")
	}
	isBlocked := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	if i := slices.IndexFunc(c.blocklist, isBlocked); i >= 0 {
		c.warn(at, "starts with %q, which the policy blocks: only trusted calls get it", c.blocklist[i])
	}
	return text, true
}

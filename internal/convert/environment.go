package convert

import (
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// defaultName reads default_env from any table. The one next to the environments has precedence.
func (c *converter) defaultName(f *finder, environments *candidate) string {
	var found []table
	for _, t := range f.defaults {
		if environments != nil && isVariables(t.at, environments.at) {
			continue
		}
		c.usage.mark(t.at.key(keyDefaultEnv))
		if environments != nil && environments.at.parent.text == t.at.text {
			found = []table{t}
			break
		}
		found = append(found, t)
	}
	if len(found) == 0 {
		return ""
	}
	at := found[0].at.key(keyDefaultEnv)
	if len(found) > 1 {
		c.fail(at, "is set in %s too: keep one of them", found[1].at)
	}
	if environments != nil && strings.HasPrefix(found[0].at.text, environments.at.text+"[") {
		c.note(at, "applies to the whole document, although it is in one environment")
	}
	name, ok := found[0].values[keyDefaultEnv].(string)
	if !ok {
		c.fail(at, "must be a string: the name of an environment")
	}
	return name
}

// isVariables reports whether a location is the variables of an environment, where any key is a variable name.
func isVariables(at, environments *location) bool {
	return strings.HasPrefix(at.text, environments.text+"[") && strings.HasSuffix(at.text, "."+keyEnv)
}

// environments converts each element. The policy must be converted before.
func (c *converter) environments(from *candidate, defaultName string) []*v1alpha1.ExecutionEnvironment {
	if from == nil {
		if defaultName != "" {
			c.fail(c.root.at, "%s names %s, but there are no environments", keyDefaultEnv, quote(defaultName))
		}
		return nil
	}
	c.note(from.at, "converted to ExecutionEnvironments: %d", len(from.tables))
	c.checkImage(from.at)
	names := c.names(from.tables)
	c.checkDefault(from, names, defaultName)
	assigned := labels(names)
	var made []*v1alpha1.ExecutionEnvironment
	for i, t := range from.tables {
		label := assigned[names[i]] // An empty name is an error. The rest of the table is read to find more errors.
		if label != names[i] {
			c.warn(t.at.key(keyName), "%s is not a valid Kubernetes name: it becomes %s, and calls must use that name", quote(names[i]), label)
		}
		made = append(made, c.environment(t, label, names[i] == defaultName))
	}
	return made
}

func (c *converter) checkImage(at *location) {
	image := c.options.Image
	unfit := func(r rune) bool { return r <= ' ' || r >= 0x7f }
	switch {
	case image == "":
		c.fail(at, "an environment needs an image: set it with %s", FlagImage)
	case len(image) > maxImage || strings.ContainsFunc(image, unfit):
		c.fail(at, "%s=%s is not a valid image name", FlagImage, quote(image))
	}
}

// names reads the name of each element. It returns "" for an invalid name.
func (c *converter) names(tables []table) []string {
	names := make([]string, len(tables))
	first := map[string]*location{}
	c.elements = map[string]bool{}
	for i, t := range tables {
		c.elements[t.at.text] = true
		at := t.at.key(keyName)
		c.usage.mark(at)
		name, ok := t.values[keyName].(string)
		switch {
		case !ok || name == "":
			c.fail(at, "an environment needs a name, as a string")
		case first[name] != nil:
			c.fail(at, "%s already is the name of %s", quote(name), first[name])
		default:
			first[name] = t.at
			names[i] = name
		}
	}
	return names
}

func (c *converter) checkDefault(from *candidate, names []string, defaultName string) {
	switch {
	case defaultName == "":
		c.note(from.at, "there is no %s: a call that names no environment fails", keyDefaultEnv)
	case !slices.Contains(names, defaultName):
		c.fail(from.at, "%s names %s, which is not one of the environments", keyDefaultEnv, quote(defaultName))
	}
}

func (c *converter) environment(t table, name string, isDefault bool) *v1alpha1.ExecutionEnvironment {
	out := &v1alpha1.ExecutionEnvironment{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ExecutionEnvironment"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.options.Namespace},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: c.options.Image},
	}
	if c.policyTable != nil || c.options.PolicyName != "" {
		out.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: c.policyName()}
	}
	if isDefault {
		out.Annotations = map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"}
	}
	out.Spec.WorkingDir, out.Spec.AllowedPaths = c.workingDir(t)
	out.Spec.Env = c.variables(t)
	return out
}

// Bounds of the API.
const (
	maxImage = 1024
	maxPath  = 4096
)

// defaultAllowed are the directories that every environment allows, besides the working directory of its image.
var defaultAllowed = []string{"/workspace", "/tmp"}

// workingDir converts cwd. The author of an environment is trusted, so the directory becomes an allowed path.
func (c *converter) workingDir(t table) (dir string, allowed []string) {
	value, ok := t.values[keyCwd]
	if !ok {
		return "", nil
	}
	at := t.at.key(keyCwd)
	c.usage.mark(at)
	dir, ok = value.(string)
	switch {
	case !ok:
		c.fail(at, "must be a string")
		return "", nil
	case dir == "":
		return "", nil
	case len(dir) > maxPath || strings.ContainsRune(dir, 0):
		c.fail(at, "is not a valid path: use at most %d bytes, without NUL", maxPath)
		return "", nil
	case strings.HasPrefix(dir, "~") || strings.Contains(dir, "$"):
		c.warn(at, "left out: a working directory is not expanded, so %s would never be found", quote(dir))
		return "", nil
	case !strings.HasPrefix(dir, "/"):
		c.warn(at, "%s is relative to the working directory of the image", quote(dir))
		return dir, nil
	case isAllowed(path.Clean(dir)):
		return dir, nil
	}
	c.warn(at, "%s must exist in the image or be mounted; allowedPaths lists it instead of the working directory of the image", quote(dir))
	return dir, append(slices.Clone(defaultAllowed), path.Clean(dir))
}

// isAllowed reports whether a clean path is in a directory that is allowed by default.
func isAllowed(dir string) bool {
	return slices.ContainsFunc(defaultAllowed, func(root string) bool {
		return dir == root || strings.HasPrefix(dir, root+"/")
	})
}

package convert

import (
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// defaultName reads default_env, wherever it stands; the one beside the environments counts over others.
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
		c.fail(at, "is set in %s too: keep one", found[1].at)
	}
	if environments != nil && strings.HasPrefix(found[0].at.text, environments.at.text+"[") {
		c.note(at, "read as the document's, although it stands in one environment")
	}
	name, ok := found[0].values[keyDefaultEnv].(string)
	if !ok {
		c.fail(at, "must be a string: the name of an environment")
	}
	return name
}

// isVariables says whether a place is the variables of an environment, where a key is only a name.
func isVariables(at, environments *place) bool {
	return strings.HasPrefix(at.text, environments.text+"[") && strings.HasSuffix(at.text, "."+keyEnv)
}

// environments makes an object of every element. The policy must have been read before.
func (c *converter) environments(from *candidate, defaultName string) []*v1alpha1.ExecutionEnvironment {
	if from == nil {
		if defaultName != "" {
			c.fail(c.root.at, "%s names %s, but there are no environments", keyDefaultEnv, quote(defaultName))
		}
		return nil
	}
	c.note(from.at, "taken as the environments: %d", len(from.tables))
	c.checkImage(from.at)
	names := c.names(from.tables)
	c.checkDefault(from, names, defaultName)
	given := labels(names)
	var made []*v1alpha1.ExecutionEnvironment
	for i, t := range from.tables {
		label := given[names[i]] // "" was an error; the rest of the table is read for more of them.
		if label != names[i] {
			c.warn(t.at.key(keyName), "%s isn't a name that Kubernetes takes: it becomes %s, and calls must name it so", quote(names[i]), label)
		}
		made = append(made, c.environment(t, label, names[i] == defaultName))
	}
	return made
}

func (c *converter) checkImage(at *place) {
	image := c.options.Image
	unfit := func(r rune) bool { return r <= ' ' || r >= 0x7f }
	switch {
	case image == "":
		c.fail(at, "an environment needs an image, and the document has none: give one with %s", FlagImage)
	case len(image) > maxImage || strings.ContainsFunc(image, unfit):
		c.fail(at, "%s=%s is no image's name", FlagImage, quote(image))
	}
}

// names reads every element's name; "" where there is none that can be used.
func (c *converter) names(tables []table) []string {
	names := make([]string, len(tables))
	first := map[string]*place{}
	c.elements = map[string]bool{}
	for i, t := range tables {
		c.elements[t.at.text] = true
		at := t.at.key(keyName)
		c.usage.mark(at)
		name, ok := t.values[keyName].(string)
		switch {
		case !ok || name == "":
			c.fail(at, "every environment needs a name, as a string")
		case first[name] != nil:
			c.fail(at, "%s is the name of %s already", quote(name), first[name])
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
		c.note(from.at, "without a %s: a call that names no environment fails", keyDefaultEnv)
	case !slices.Contains(names, defaultName):
		c.fail(from.at, "%s names %s, which isn't one of them", keyDefaultEnv, quote(defaultName))
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

// defaultAllowed are the directories that every environment allows, besides its image's own.
var defaultAllowed = []string{"/workspace", "/tmp"}

// workingDir reads cwd. It is allowed as such: who writes an environment is trusted with its directory.
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
		c.fail(at, "is no path: at most %d bytes, without NUL", maxPath)
		return "", nil
	case strings.HasPrefix(dir, "~") || strings.Contains(dir, "$"):
		c.warn(at, "left out: nothing is expanded in a working directory, and %s would never be found", quote(dir))
		return "", nil
	case !strings.HasPrefix(dir, "/"):
		c.warn(at, "%s is relative: it will be joined with the image's working directory", quote(dir))
		return dir, nil
	case isAllowed(path.Clean(dir)):
		return dir, nil
	}
	c.warn(at, "%s must exist in the image or be mounted; allowedPaths lists it, and no longer the image's own directory", quote(dir))
	return dir, append(slices.Clone(defaultAllowed), path.Clean(dir))
}

// isAllowed says whether a clean path lies in one that is allowed anyway.
func isAllowed(dir string) bool {
	return slices.ContainsFunc(defaultAllowed, func(root string) bool {
		return dir == root || strings.HasPrefix(dir, root+"/")
	})
}

package convert

import (
	"cmp"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// Built-in values of the API.
const (
	maxTimeoutSeconds   = 604800
	builtInDefaultLimit = 120
	builtInMaxLimit     = 600
)

// builtInBlocklist applies if a document has no env_blocklist.
var builtInBlocklist = []string{
	"TOOLCALL_", "KUBERNETES_", "AWS_", "AZURE_", "GCP_", "GOOGLE_", "OPENAI_", "ANTHROPIC_", "HF_", "HUGGING",
}

func (c *converter) policyName() string { return cmp.Or(c.options.PolicyName, DefaultPolicyName) }

// policy converts the table of limits.
func (c *converter) policy(t table) *v1alpha1.ExecutionPolicy {
	c.hasPolicy, c.blocklist = true, builtInBlocklist
	c.note(t.String(), "these limits become ExecutionPolicy %s, which is cluster-scoped", c.policyName())
	c.note(t.String(), `access stays RBAC: requesters need the verb "use" on the tools`)
	out := &v1alpha1.ExecutionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ExecutionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: c.policyName()},
	}
	out.Spec.Shell = c.shell(t)
	out.Spec.Binaries = c.binaries(t)
	c.restrictShell(t, &out.Spec)
	out.Spec.Timeouts = c.timeouts(t)
	out.Spec.EnvBlocklist = c.envBlocklist(t)
	for _, key := range t.foreign(append(policyKeys, keyDefaultEnv)...) {
		// Tables around the limits, and all that is at the top of the document, belong to others.
		if inner, _ := tablesIn(key, t.values[key]); inner == nil && t.path != "" {
			c.warn(t.at(key), "unknown key: left out")
		}
	}
	return out
}

func (c *converter) shell(t table) *v1alpha1.ShellPolicy {
	enabled, ok := value[bool](c, t, keyShellMode, "true or false")
	if !ok {
		return nil
	}
	return &v1alpha1.ShellPolicy{Enabled: &enabled}
}

// binaries converts allowed_commands. An empty list allowed everything, as Permissive does. Any other list becomes
// Enforced, so that a listed program can't start an unlisted one. It stays Enforced, and allows nothing, if no entry can
// be converted.
func (c *converter) binaries(t table) *v1alpha1.BinariesPolicy {
	list, ok := c.list(t, keyCommands)
	at := t.at(keyCommands)
	switch {
	case !ok:
		return nil
	case len(list) == 0:
		c.warn(at, "empty: any command is allowed, as before (to allow none, set binaries.mode: Enforced)")
		return &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesPermissive}
	}
	c.note(at, "binaries.mode is Enforced: a listed command can only start listed commands (to allow others, set Permissive)")
	allowed := []string{}
	for _, entry := range list {
		name := path.Base(entry)
		switch {
		case !isProgram(entry):
			c.warn(at, "left out: %q is not the plain name of a program (a list can't have arguments or patterns)", entry)
			continue
		case name != entry:
			c.warn(at, "%q becomes %q: lists have names, which are looked up in PATH", entry, name)
		}
		if !slices.Contains(allowed, name) {
			allowed = append(allowed, name)
		}
	}
	if len(allowed) == 0 {
		c.warn(at, "no entry can be converted: no command is allowed")
	}
	return &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Allowed: allowed}
}

// isProgram says whether an entry is the name of a program, or a path to it, and nothing that means more.
func isProgram(entry string) bool {
	isSpace := func(r rune) bool { return r <= ' ' || r == 0x7f }
	return entry != "" && entry != "." && !strings.Contains(entry, "..") && !strings.HasSuffix(entry, "/") && !strings.HasSuffix(entry, "/.") &&
		!strings.ContainsFunc(entry, isSpace) && !strings.ContainsAny(entry, "*?[]{}$\\|&;<>()`'\"")
}

// restrictShell applies the list to shell scripts too. Whether the old program did is uncertain, and otherwise a list
// next to an unrestricted shell would allow everything.
func (c *converter) restrictShell(t table, spec *v1alpha1.ExecutionPolicySpec) {
	if spec.Shell == nil || !*spec.Shell.Enabled || spec.Binaries == nil {
		return
	}
	if spec.Binaries.Mode != v1alpha1.BinariesEnforced {
		c.note(t.at(keyShellMode), "scripts can run any command (shell.commands is Unrestricted)")
		return
	}
	spec.Shell.Commands = v1alpha1.ShellAllowlisted
	c.warn(t.at(keyShellMode), "%s applies to scripts too (shell.commands: Allowlisted): set Unrestricted if scripts should run any command", keyCommands)
}

// timeouts converts both limits. A default above the maximum, also of built-in values, is written as what it comes to.
func (c *converter) timeouts(t table) *v1alpha1.TimeoutsPolicy {
	def, limit := c.seconds(t, keyDefaultTimeout), c.seconds(t, keyMaxTimeout)
	if def == 0 && limit == 0 {
		return nil
	}
	out := &v1alpha1.TimeoutsPolicy{}
	if limit > 0 {
		out.MaxSeconds = &limit
	}
	highest := cmp.Or(limit, builtInMaxLimit)
	if wanted := cmp.Or(def, builtInDefaultLimit); wanted > highest {
		c.warn(t.at(keyDefaultTimeout), "a default of %d exceeds the maximum and becomes %d", wanted, highest)
		def = highest
	}
	if def > 0 {
		out.DefaultSeconds = &def
	}
	return out
}

// seconds reads a whole number of seconds, 0 for none that is a limit.
func (c *converter) seconds(t table, key string) int32 {
	n, ok := value[int64](c, t, key, "a whole number of seconds")
	switch {
	case !ok:
		return 0
	case n < 1:
		c.warn(t.at(key), "left out: %d is not a time limit; the built-in limit applies", n)
		return 0
	case n > maxTimeoutSeconds:
		c.warn(t.at(key), "%d becomes %d, the maximum", n, maxTimeoutSeconds)
		return maxTimeoutSeconds
	}
	return int32(n)
}

// envBlocklist converts env_blocklist, and keeps it for the remarks on variables.
func (c *converter) envBlocklist(t table) []string {
	list, ok := c.list(t, keyBlocklist)
	if !ok {
		return nil
	}
	at, prefixes := t.at(keyBlocklist), []string{}
	for _, entry := range list {
		prefix := strings.TrimSuffix(entry, "*")
		if !variableName.MatchString(prefix) {
			c.warn(at, "left out: %q is not the start of a variable name (a list can't have other patterns)", entry)
		} else if !slices.Contains(prefixes, prefix) {
			prefixes = append(prefixes, prefix)
		}
	}
	if len(list) > 0 && len(prefixes) == 0 {
		c.warn(at, "no entry can be converted: the built-in list applies")
		return nil
	}
	missing := slices.DeleteFunc(slices.Clone(builtInBlocklist), func(builtIn string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(builtIn, prefix) })
	})
	if len(missing) > 0 {
		c.warn(at, "replaces the built-in list, so these prefixes are no longer blocked: %s", strings.Join(missing, ", "))
	}
	c.blocklist = prefixes
	return prefixes
}

// list reads an array of strings. It returns false if there is none.
func (c *converter) list(t table, key string) (list []string, ok bool) {
	const want = "an array of strings"
	elements, ok := value[[]any](c, t, key, want)
	for _, element := range elements {
		text, isText := element.(string)
		if !isText {
			c.fail(t.at(key), "must be %s", want)
			return nil, false
		}
		list = append(list, text)
	}
	return list, ok
}

// value reads a key that has to be of a type. It returns false if there is none.
func value[T any](c *converter, t table, key, want string) (v T, ok bool) {
	if v, ok = t.values[key].(T); !ok && t.has(key) {
		c.fail(t.at(key), "must be %s", want)
	}
	return v, ok
}

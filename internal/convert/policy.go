package convert

import (
	"math"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// Bounds and built-in defaults of the API.
const (
	maxCommands         = 1024
	maxPrefixes         = 256
	maxEntry            = 256
	maxTimeoutSeconds   = 604800
	builtInDefaultLimit = 120
	builtInMaxLimit     = 600
)

// builtInBlocklist applies if a document has no env_blocklist.
var builtInBlocklist = []string{
	"TOOLCALL_", "KUBERNETES_", "AWS_", "AZURE_", "GCP_", "GOOGLE_", "OPENAI_", "ANTHROPIC_", "HF_", "HUGGING",
}

func (c *converter) policyName() string {
	if c.options.PolicyName != "" {
		return c.options.PolicyName
	}
	return DefaultPolicyName
}

// policy converts the table of limits. It returns nil if there is none.
func (c *converter) policy(from *candidate) *v1alpha1.ExecutionPolicy {
	if from == nil {
		if c.options.PolicyName == "" {
			c.blocklist = builtInBlocklist
		}
		return nil
	}
	c.blocklist = builtInBlocklist
	t := from.tables[0]
	c.policyTable = t.at
	c.note(t.at, "these limits become ExecutionPolicy %s, which is cluster-scoped", c.policyName())
	c.note(t.at, `access stays RBAC: requesters need the verb "use" on the tools`)
	out := &v1alpha1.ExecutionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ExecutionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: c.policyName()},
	}
	out.Spec.Shell = c.shell(t)
	out.Spec.Binaries = c.binaries(t)
	c.restrictShell(t, &out.Spec)
	out.Spec.Timeouts = c.timeouts(t)
	out.Spec.EnvBlocklist = c.envBlocklist(t)
	return out
}

// get returns a limit and records its use.
func (c *converter) get(t table, key string) (any, *location, bool) {
	at := t.at.key(key)
	value, ok := t.values[key]
	if ok {
		c.usage.mark(at)
	}
	return value, at, ok
}

func (c *converter) shell(t table) *v1alpha1.ShellPolicy {
	value, at, ok := c.get(t, keyShellMode)
	if !ok {
		return nil
	}
	enabled, ok := value.(bool)
	if !ok {
		c.fail(at, "must be true or false")
	}
	return &v1alpha1.ShellPolicy{Enabled: &enabled}
}

// binaries converts allowed_commands. An empty list allowed everything, as Permissive does. Any other list becomes
// Enforced, so that a listed program can't start an unlisted one. It stays Enforced, and allows nothing, if no entry can
// be converted.
func (c *converter) binaries(t table) *v1alpha1.BinariesPolicy {
	value, at, ok := c.get(t, keyCommands)
	if !ok {
		return nil
	}
	list, ok := c.list(at, value, maxCommands)
	if !ok {
		return nil
	}
	if len(list) == 0 {
		c.warn(at, "empty: any command is allowed, as before (to allow none, set binaries.mode: Enforced)")
		return &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesPermissive}
	}
	c.note(at, "binaries.mode is Enforced: a listed command can only start listed commands (to allow others, set Permissive)")
	allowed := []string{}
	for i, entry := range list {
		if name := c.command(at.index(i), entry); name != "" && !slices.Contains(allowed, name) {
			allowed = append(allowed, name)
		}
	}
	if len(allowed) == 0 {
		c.warn(at, "no entry can be converted: no command is allowed")
	}
	return &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Allowed: allowed}
}

// command converts an entry to the name of a program. It returns "" for an entry that is left out.
func (c *converter) command(at *location, entry string) string {
	name := path.Base(entry)
	isSpace := func(r rune) bool { return r <= ' ' || r == 0x7f }
	switch {
	case entry == "" || len(entry) > maxEntry || strings.ContainsFunc(entry, isSpace):
		c.warn(at, "left out: %s is not the name of a program (a list can't have arguments)", quote(entry))
		return ""
	case strings.ContainsAny(entry, "*?[]{}$\\|&;<>()`'\""):
		c.warn(at, "left out: %s is not a plain name (a list can't have patterns)", quote(entry))
		return ""
	case name == "/" || name == "." || strings.Contains(entry, "..") || strings.HasSuffix(entry, "/"):
		c.warn(at, "left out: %s is not the name of a program", quote(entry))
		return ""
	case name != entry:
		c.warn(at, "%s becomes %s: lists have names, which are looked up in PATH", quote(entry), quote(name))
	}
	return name
}

// restrictShell applies the list to shell scripts too. Whether the old program did is uncertain, and otherwise a list
// next to an unrestricted shell would allow everything.
func (c *converter) restrictShell(t table, spec *v1alpha1.ExecutionPolicySpec) {
	if spec.Shell == nil || !*spec.Shell.Enabled || spec.Binaries == nil {
		return
	}
	at := t.at.key(keyShellMode)
	if spec.Binaries.Mode != v1alpha1.BinariesEnforced {
		c.note(at, "scripts can run any command (shell.commands is Unrestricted)")
		return
	}
	spec.Shell.Commands = v1alpha1.ShellAllowlisted
	c.warn(at, "%s applies to scripts too (shell.commands: Allowlisted): set Unrestricted if scripts should run any command", keyCommands)
}

// timeouts converts both limits. The API server rejects a default above the maximum, also of built-in values.
func (c *converter) timeouts(t table) *v1alpha1.TimeoutsPolicy {
	def, hasDefault := c.seconds(t, keyDefaultTimeout)
	limit, hasLimit := c.seconds(t, keyMaxTimeout)
	if !hasDefault && !hasLimit {
		return nil
	}
	out := &v1alpha1.TimeoutsPolicy{}
	highest := int32(builtInMaxLimit)
	if hasLimit {
		highest, out.MaxSeconds = limit, &limit
	}
	lowered := hasDefault && def > highest
	switch {
	case lowered:
		c.warn(t.at.key(keyDefaultTimeout), "%d exceeds the maximum and becomes %d", def, highest)
		out.DefaultSeconds = &highest
	case hasDefault:
		out.DefaultSeconds = &def
	case highest < builtInDefaultLimit:
		c.note(t.at.key(keyMaxTimeout), "the default limit becomes %d too: the built-in default is %d", highest, builtInDefaultLimit)
		out.DefaultSeconds = &highest
	}
	return out
}

// seconds reads a whole number of seconds. It returns false if there is no valid one.
func (c *converter) seconds(t table, key string) (int32, bool) {
	value, at, ok := c.get(t, key)
	if !ok {
		return 0, false
	}
	var n int64
	switch v := value.(type) {
	case int64:
		n = v
	case float64:
		if v != math.Trunc(v) || math.Abs(v) > 1<<52 {
			c.fail(at, "must be a whole number of seconds")
			return 0, false
		}
		n = int64(v)
	default:
		c.fail(at, "must be a whole number of seconds")
		return 0, false
	}
	switch {
	case n < 1:
		c.warn(at, "left out: %d is not a time limit; the built-in limit applies", n)
		return 0, false
	case n > maxTimeoutSeconds:
		c.warn(at, "%d becomes %d, the maximum", n, maxTimeoutSeconds)
		return maxTimeoutSeconds, true
	}
	return int32(n), true
}

// envBlocklist converts env_blocklist, and keeps it for the remarks on variables.
func (c *converter) envBlocklist(t table) []string {
	value, at, ok := c.get(t, keyBlocklist)
	if !ok {
		return nil
	}
	list, ok := c.list(at, value, maxPrefixes)
	if !ok {
		return nil
	}
	prefixes := []string{}
	for i, entry := range list {
		if prefix := c.prefix(at.index(i), entry); prefix != "" && !slices.Contains(prefixes, prefix) {
			prefixes = append(prefixes, prefix)
		}
	}
	if len(list) > 0 && len(prefixes) == 0 {
		c.warn(at, "no entry can be converted: the built-in list applies")
		return nil
	}
	c.remarkUnblocked(at, prefixes)
	c.blocklist = prefixes
	return prefixes
}

// prefix converts an entry of the blocklist. It returns "" for an entry that is left out.
func (c *converter) prefix(at *location, entry string) string {
	prefix := strings.TrimSuffix(entry, "*")
	switch {
	case prefix == "" || len(prefix) > maxEntry:
		c.warn(at, "left out: a prefix must have 1 to %d characters", maxEntry)
		return ""
	case !variableName.MatchString(prefix):
		c.warn(at, "left out: %s is not the start of a variable name (a list can't have other patterns)", quote(entry))
		return ""
	}
	return prefix
}

// remarkUnblocked names the built-in prefixes that the list doesn't have.
func (c *converter) remarkUnblocked(at *location, prefixes []string) {
	var missing []string
	for _, builtIn := range builtInBlocklist {
		covers := func(prefix string) bool { return strings.HasPrefix(builtIn, prefix) }
		if !slices.ContainsFunc(prefixes, covers) {
			missing = append(missing, builtIn)
		}
	}
	if len(missing) > 0 {
		c.warn(at, "replaces the built-in list, so these prefixes are no longer blocked: %s", strings.Join(missing, ", "))
	}
}

// list reads an array of strings, up to a limit.
func (c *converter) list(at *location, value any, limit int) ([]string, bool) {
	elements, ok := value.([]any)
	if len(elements) > limit {
		c.fail(at, "has %d entries, more than the limit of %d", len(elements), limit)
		return nil, false
	}
	list := make([]string, 0, len(elements))
	for _, element := range elements {
		text, isText := element.(string)
		ok = ok && isText
		list = append(list, text)
	}
	if !ok {
		c.fail(at, "must be an array of strings")
	}
	return list, ok
}

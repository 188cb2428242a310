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

// builtInBlocklist holds when a document has no env_blocklist.
var builtInBlocklist = []string{
	"TOOLCALL_", "KUBERNETES_", "AWS_", "AZURE_", "GCP_", "GOOGLE_", "OPENAI_", "ANTHROPIC_", "HF_", "HUGGING",
}

func (c *converter) policyName() string {
	if c.options.PolicyName != "" {
		return c.options.PolicyName
	}
	return DefaultPolicyName
}

// policy makes an object of the table of limits, nil when there is none.
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
	c.note(t.at, "taken as the limits: ExecutionPolicy %s, which is not of a namespace but of the cluster", c.policyName())
	c.note(t.at, `access stays RBAC: callers need the right to "use" the tools`)
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

// get reads a limit and records that it was read.
func (c *converter) get(t table, key string) (any, *place, bool) {
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

// binaries reads allowed_commands. An empty list allowed everything, as it does under Permissive. One that
// isn't empty is Enforced, so that a listed program can't be used to start one that isn't; it stays so
// when nothing in it could be carried over, which then allows nothing.
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
		c.warn(at, "empty: any command is allowed, as before (binaries.mode: Enforced with an empty list allows none)")
		return &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesPermissive}
	}
	c.note(at, "binaries.mode is Enforced: a listed command that starts others may start listed ones only (Permissive lifts that)")
	allowed := []string{}
	for i, entry := range list {
		if name := c.command(at.index(i), entry); name != "" && !slices.Contains(allowed, name) {
			allowed = append(allowed, name)
		}
	}
	if len(allowed) == 0 {
		c.warn(at, "no entry could be carried over: no command is allowed")
	}
	return &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Allowed: allowed}
}

// command reads an entry as a program's bare name, "" when it is left out.
func (c *converter) command(at *place, entry string) string {
	name := path.Base(entry)
	isSpace := func(r rune) bool { return r <= ' ' || r == 0x7f }
	switch {
	case entry == "" || len(entry) > maxEntry || strings.ContainsFunc(entry, isSpace):
		c.warn(at, "left out: %s isn't a program's name (arguments can't be listed)", quote(entry))
		return ""
	case strings.ContainsAny(entry, "*?[]{}$\\|&;<>()`'\""):
		c.warn(at, "left out: %s isn't a plain name, and patterns can't be listed", quote(entry))
		return ""
	case name == "/" || name == "." || strings.Contains(entry, "..") || strings.HasSuffix(entry, "/"):
		c.warn(at, "left out: %s isn't a program's name", quote(entry))
		return ""
	case name != entry:
		c.warn(at, "%s becomes %s: programs are listed by bare name and found by PATH", quote(entry), quote(name))
	}
	return name
}

// restrictShell holds scripts to the list as well. Whether they were is uncertain, and without it a list
// beside an open shell would allow everything.
func (c *converter) restrictShell(t table, spec *v1alpha1.ExecutionPolicySpec) {
	if spec.Shell == nil || !*spec.Shell.Enabled || spec.Binaries == nil {
		return
	}
	at := t.at.key(keyShellMode)
	if spec.Binaries.Mode != v1alpha1.BinariesEnforced {
		c.note(at, "scripts may run any command (shell.commands is Unrestricted)")
		return
	}
	spec.Shell.Commands = v1alpha1.ShellAllowlisted
	c.warn(at, "scripts are held to %s too (shell.commands: Allowlisted): set Unrestricted if they were meant to run anything", keyCommands)
}

// timeouts reads both limits; the API refuses a default above the maximum, the built-in ones included.
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
		c.warn(t.at.key(keyDefaultTimeout), "%d is above the maximum and becomes %d", def, highest)
		out.DefaultSeconds = &highest
	case hasDefault:
		out.DefaultSeconds = &def
	case highest < builtInDefaultLimit:
		c.note(t.at.key(keyMaxTimeout), "the default limit becomes %d as well: the built-in one is %d", highest, builtInDefaultLimit)
		out.DefaultSeconds = &highest
	}
	return out
}

// seconds reads a whole number of seconds; false when there is none that can be used.
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
		c.warn(at, "left out: %d isn't a time limit; the built-in one holds", n)
		return 0, false
	case n > maxTimeoutSeconds:
		c.warn(at, "%d becomes %d, the longest there is", n, maxTimeoutSeconds)
		return maxTimeoutSeconds, true
	}
	return int32(n), true
}

// envBlocklist reads env_blocklist; what it gives is also what variables are compared with.
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
		c.warn(at, "no entry could be carried over: the built-in list holds")
		return nil
	}
	c.mentionUnblocked(at, prefixes)
	c.blocklist = prefixes
	return prefixes
}

// prefix reads an entry of the blocklist, "" when it is left out.
func (c *converter) prefix(at *place, entry string) string {
	prefix := strings.TrimSuffix(entry, "*")
	switch {
	case prefix == "" || len(prefix) > maxEntry:
		c.warn(at, "left out: a prefix has 1 to %d characters", maxEntry)
		return ""
	case !variableName.MatchString(prefix):
		c.warn(at, "left out: %s is no start of a variable's name, and other patterns can't be blocked", quote(entry))
		return ""
	}
	return prefix
}

// mentionUnblocked names the built-in prefixes that the list does away with.
func (c *converter) mentionUnblocked(at *place, prefixes []string) {
	var gone []string
	for _, builtIn := range builtInBlocklist {
		covers := func(prefix string) bool { return strings.HasPrefix(builtIn, prefix) }
		if !slices.ContainsFunc(prefixes, covers) {
			gone = append(gone, builtIn)
		}
	}
	if len(gone) > 0 {
		c.warn(at, "takes the place of the built-in list, so these are no longer blocked: %s", strings.Join(gone, ", "))
	}
}

// list reads an array of at most so many strings.
func (c *converter) list(at *place, value any, limit int) ([]string, bool) {
	elements, ok := value.([]any)
	if len(elements) > limit {
		c.fail(at, "holds %d entries, over the limit of %d", len(elements), limit)
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

package convert

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Keys of the configuration.
const (
	keyName       = "name"
	keyCwd        = "cwd"
	keyEnv        = "env"
	keyDefaultEnv = "default_env"

	keyShellMode      = "allow_shell_mode"
	keyCommands       = "allowed_commands"
	keyDefaultTimeout = "default_timeout_secs"
	keyMaxTimeout     = "max_timeout_secs"
	keyBlocklist      = "env_blocklist"
)

var (
	environmentKeys = []string{keyName, keyCwd, keyEnv}
	policyKeys      = []string{keyShellMode, keyCommands, keyDefaultTimeout, keyMaxTimeout, keyBlocklist}
)

// maxDepth bounds the search for tables.
const maxDepth = 16

// table is a TOML table, and the path of keys that leads to it, empty for the document itself.
type table struct {
	path   string
	values map[string]any
}

func (t table) String() string {
	if t.path == "" {
		return "top level"
	}
	return t.path
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// at is the path of a key in the table, in which keys are quoted as in TOML.
func (t table) at(key string) string {
	if !bareKey.MatchString(key) {
		key = fmt.Sprintf("%q", key)
	}
	if t.path == "" {
		return key
	}
	return t.path + "." + key
}

// has says whether the table has any of the keys.
func (t table) has(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { _, ok := t.values[key]; return ok })
}

// foreign are the keys other than those given, in order.
func (t table) foreign(keys ...string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.values)), func(key string) bool { return slices.Contains(keys, key) })
}

// candidate is a table, or an array of tables, that can be the environments or the limits.
type candidate struct {
	path   string
	tables []table
}

// tables are the candidates of a document, and its tables with a default environment.
type tables struct{ environments, limits, defaults []candidate }

func search(root table) *tables {
	found := &tables{}
	found.walk(root, 0)
	return found
}

func (f *tables) walk(t table, depth int) {
	if depth > maxDepth {
		return
	}
	if t.has(policyKeys...) {
		f.limits = append(f.limits, candidate{t.path, []table{t}})
	}
	if t.has(keyDefaultEnv) {
		f.defaults = append(f.defaults, candidate{t.path, []table{t}})
	}
	for _, key := range t.foreign() {
		inner, isArray := tablesIn(t.at(key), t.values[key])
		if isArray && looksLikeEnvironments(key, inner) {
			f.environments = append(f.environments, candidate{t.at(key), inner})
		}
		for _, next := range inner {
			f.walk(next, depth+1)
		}
	}
}

// tablesIn returns a value that is a table, or an array of tables.
func tablesIn(path string, value any) (tables []table, isArray bool) {
	switch v := value.(type) {
	case map[string]any:
		return []table{{path, v}}, false
	case []any:
		for i, element := range v {
			values, ok := element.(map[string]any)
			if !ok {
				return nil, false
			}
			tables = append(tables, table{fmt.Sprintf("%s[%d]", path, i), values})
		}
		return tables, len(tables) > 0
	default:
		return nil, false
	}
}

// looksLikeEnvironments says whether an array of tables with names is called so, or has directories or variables and nothing else: a
// list of servers with name, command and env is none.
func looksLikeEnvironments(key string, all []table) bool {
	isNamed := func(t table) bool { return t.has(keyName) }
	isConfigured := func(t table) bool { return t.has(keyCwd, keyEnv) }
	hasOthers := func(t table) bool { return len(t.foreign(environmentKeys...)) > 0 }
	isCalledSo := strings.Contains(strings.ToLower(key), "env")
	return slices.ContainsFunc(all, isNamed) && (isCalledSo || slices.ContainsFunc(all, isConfigured) && !slices.ContainsFunc(all, hasOthers))
}

// outside leaves out what is in the environments: there, a limit or a default is an unknown key, or a variable.
func outside(all []candidate, environments *candidate) []candidate {
	return slices.DeleteFunc(all, func(c candidate) bool {
		return environments != nil && strings.HasPrefix(c.path, environments.path+"[")
	})
}

// choose returns the only candidate, or that with the key which the user gives, as remarks write it. The quotes of a key alone can be left
// out.
func (c *converter) choose(what, flag, wanted string, all []candidate) *candidate {
	var names []string
	for _, one := range all {
		names = append(names, table{path: one.path}.String())
	}
	for _, name := range []string{wanted, table{}.at(wanted)} {
		if at := slices.Index(names, name); wanted != "" && at >= 0 {
			return &all[at]
		}
	}
	switch {
	case wanted != "":
		c.fail(wanted, "%s doesn't name %s; candidates: %s", flag, what, strings.Join(names, ", "))
	case len(all) > 1:
		c.fail("top level", "%s: more than one candidate (%s): select one with %s", what, strings.Join(names, ", "), flag)
	case len(all) == 1:
		return &all[0]
	}
	return nil
}

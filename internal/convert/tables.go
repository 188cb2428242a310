package convert

import (
	"fmt"
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
	environmentKeys = []string{keyName, keyCwd, keyEnv, keyDefaultEnv}
	policyKeys      = []string{keyShellMode, keyCommands, keyDefaultTimeout, keyMaxTimeout, keyBlocklist}
)

// maxDepth bounds the search for tables.
const maxDepth = 16

// candidate is a table or table array that can be the environments or the limits. The one with most points is taken.
type candidate struct {
	at     *location
	tables []table
	points int
}

// finder collects the candidates of a document.
type finder struct {
	environments, policies []candidate
	defaults               []table
}

func (f *finder) walk(t table, depth int) {
	if depth > maxDepth {
		return
	}
	if points := countKeys(t, policyKeys); points > 0 {
		f.policies = append(f.policies, candidate{at: t.at, tables: []table{t}, points: points})
	}
	if _, ok := t.values[keyDefaultEnv]; ok {
		f.defaults = append(f.defaults, t)
	}
	for _, name := range t.keys() {
		at := t.at.key(name)
		inner := tablesIn(at, t.values[name])
		if points, ok := environmentPoints(t, name, inner); ok {
			f.environments = append(f.environments, candidate{at: at, tables: inner, points: points})
		}
		for _, next := range inner {
			f.walk(next, depth+1)
		}
	}
}

func countKeys(t table, keys []string) int {
	n := 0
	for _, key := range keys {
		if _, ok := t.values[key]; ok {
			n++
		}
	}
	return n
}

// environmentPoints rates an array as environments: tables with a name, and a directory or variables. The name of the
// array, a default_env next to it and the absence of other keys add points, so that, for example, a list of servers with
// name, command and env is not taken.
func environmentPoints(parent table, name string, inner []table) (int, bool) {
	elements, isArray := parent.values[name].([]any)
	if !isArray || len(inner) == 0 || len(inner) != len(elements) {
		return 0, false
	}
	named, configured, foreign := false, false, false
	for _, t := range inner {
		named = named || countKeys(t, []string{keyName}) > 0
		configured = configured || countKeys(t, []string{keyCwd, keyEnv}) > 0
		foreign = foreign || countKeys(t, environmentKeys) < len(t.values)
	}
	points := 0
	if strings.Contains(strings.ToLower(name), "env") {
		points += 4
	}
	if !foreign {
		points += 2
	}
	if countKeys(parent, []string{keyDefaultEnv}) > 0 {
		points += 2
	}
	return points, (named && configured || points >= 4) && points > 0
}

// choose returns the candidate with the key in the options, otherwise the one with the most points.
func choose(what, flag, wanted string, all []candidate) (*candidate, error) {
	if wanted != "" {
		i := slices.IndexFunc(all, func(c candidate) bool { return c.at.text == wanted })
		if i < 0 {
			return nil, fmt.Errorf("%s=%s doesn't match %s; candidates: %s", flag, quote(wanted), what, keysOf(all))
		}
		return &all[i], nil
	}
	if len(all) == 0 {
		return nil, nil
	}
	best := slices.MaxFunc(all, func(a, b candidate) int { return a.points - b.points })
	equal := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return c.points < best.points })
	if len(equal) > 1 {
		return nil, fmt.Errorf("%s: more than one candidate (%s): select one with %s", what, keysOf(equal), flag)
	}
	return &best, nil
}

func keysOf(all []candidate) string {
	if len(all) == 0 {
		return "none"
	}
	names := make([]string, 0, len(all))
	for _, c := range all[:min(len(all), 8)] {
		names = append(names, c.at.String())
	}
	return strings.Join(names, ", ")
}

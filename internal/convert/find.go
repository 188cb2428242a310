package convert

import (
	"fmt"
	"slices"
	"strings"
)

// Keys that the old configuration has.
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

// maxDepth is how deep the tables are looked for.
const maxDepth = 16

// candidate is a place where environments or a policy may stand; more points, more likely.
type candidate struct {
	at     *place
	tables []table
	points int
}

// finder walks a document once and collects candidates.
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

// environmentPoints judges an array by its shape: tables with a name and a directory or variables. The
// name of the array, a default_env beside it and the absence of foreign keys count for it, so that e.g. a
// list of servers with name, command and env isn't taken for environments.
func environmentPoints(parent table, name string, inner []table) (int, bool) {
	elements, isArray := parent.values[name].([]any)
	if !isArray || len(inner) == 0 || len(inner) != len(elements) {
		return 0, false
	}
	named, furnished, foreign := false, false, false
	for _, t := range inner {
		named = named || countKeys(t, []string{keyName}) > 0
		furnished = furnished || countKeys(t, []string{keyCwd, keyEnv}) > 0
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
	return points, (named && furnished || points >= 4) && points > 0
}

// choose takes the candidate that the user names, else the one with the most points.
func choose(what, flag, wanted string, all []candidate) (*candidate, error) {
	if wanted != "" {
		i := slices.IndexFunc(all, func(c candidate) bool { return c.at.text == wanted })
		if i < 0 {
			return nil, fmt.Errorf("%s=%s names nothing that looks like %s; there is: %s", flag, quote(wanted), what, placesOf(all))
		}
		return &all[i], nil
	}
	if len(all) == 0 {
		return nil, nil
	}
	best := slices.MaxFunc(all, func(a, b candidate) int { return a.points - b.points })
	equal := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return c.points < best.points })
	if len(equal) > 1 {
		return nil, fmt.Errorf("%s could be any of %s: choose one with %s", what, placesOf(equal), flag)
	}
	return &best, nil
}

func placesOf(all []candidate) string {
	if len(all) == 0 {
		return "nothing"
	}
	names := make([]string, 0, len(all))
	for _, c := range all[:min(len(all), 8)] {
		names = append(names, c.at.String())
	}
	return strings.Join(names, ", ")
}

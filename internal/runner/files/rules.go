package files

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"toolcall.dev/operator/internal/glob"
	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
)

// compiledRules are the rules for one request, with the defaults of its bounds.
type compiledRules struct {
	Rules
	// roots are the allowed directories, the outermost first.
	roots []string
	// kept are all allowed directories, to read or to write: nothing deletes or moves them.
	kept []string
	// denied matches absolute paths; nil denies nothing.
	denied *regexp.Regexp
	// showing is held while lines of a Grep are shown with what is around them: so memory doesn't grow with the workers.
	showing sync.Mutex
	// listField names the list of the policy, for messages.
	listField string
}

// boundText is a bound in bytes, for messages: kubectl shows no default of maxReadBytes and maxWriteBytes.
func boundText(bound int64) string {
	if bound == DefaultMaxBytes {
		return fmt.Sprintf("%d (the default)", bound)
	}
	return strconv.FormatInt(bound, 10)
}

// compile checks rules; what can't be applied allows nothing.
func (r *Rules) compile(writes bool) (*compiledRules, error) {
	c := &compiledRules{Rules: *r}
	c.MaxOutputBytes = cmp.Or(r.MaxOutputBytes, math.MaxInt64)
	c.MaxReadBytes, c.MaxWriteBytes = cmp.Or(r.MaxReadBytes, DefaultMaxBytes), cmp.Or(r.MaxWriteBytes, DefaultMaxBytes)
	for _, p := range slices.Concat(r.ReadPaths, r.WritePaths) {
		if !strings.HasPrefix(p, "/") || strings.ContainsRune(p, 0) || path.Clean(p) != strings.TrimSuffix(p, "/") && p != "/" {
			return nil, sys.NewError(reason.PathNotAllowed, "The allowed directory %s isn't an absolute path without \"..\", \".\" and double "+
				"slashes: correct the policy.", sys.Quote(p))
		}
		c.kept = append(c.kept, path.Clean(p))
	}
	c.roots, c.listField = slices.Clone(c.kept[:len(r.ReadPaths)]), "readPaths"
	if writes {
		c.roots, c.listField = slices.Clone(c.kept[len(r.ReadPaths):]), "writePaths"
	}
	slices.SortFunc(c.roots, func(a, b string) int { return cmp.Or(len(a)-len(b), cmp.Compare(a, b)) })
	c.roots = slices.Compact(c.roots)
	denied, err := glob.Denied(r.DeniedPaths)
	if err != nil {
		return nil, sys.NewError(reason.PathNotAllowed, "The policy's files.deniedPaths can't be used: %v: correct the policy.", err)
	}
	c.denied = denied
	return c, nil
}

// isDenied says that a path, or a directory above it, is denied.
func (c *compiledRules) isDenied(path string) bool {
	return c.denied != nil && c.denied.MatchString(path) || c.isRunners(path)
}

// deniesNothingBelow says that isDenied is false for every path below some directories.
func (c *compiledRules) deniesNothingBelow(dirs ...string) bool {
	return c.denied == nil && !slices.ContainsFunc(c.RunnerPaths, func(own string) bool {
		return slices.ContainsFunc(dirs, func(dir string) bool { return isWithin(dir, own) })
	})
}

// isRunners says that a path is the runner's own, or below one that is.
func (c *compiledRules) isRunners(path string) bool {
	return slices.ContainsFunc(c.RunnerPaths, func(own string) bool { return isWithin(own, path) })
}

// rootOf returns the outermost allowed directory that a path lies in.
func (c *compiledRules) rootOf(path string) (string, bool) {
	for _, root := range c.roots {
		if isWithin(root, path) {
			return root, true
		}
	}
	return "", false
}

// leadsToRoot says that an allowed directory is below a path.
func (c *compiledRules) leadsToRoot(path string) bool {
	return slices.ContainsFunc(c.roots, func(root string) bool { return isWithin(path, root) })
}

// isKept says that a path is an allowed directory, or has one below it.
func (c *compiledRules) isKept(path string) bool {
	return slices.ContainsFunc(c.kept, func(root string) bool { return isWithin(path, root) })
}

// leadsTo begins a message about a path.
func leadsTo(asked, path string) string {
	if asked == path {
		return sys.Quote(asked)
	}
	return sys.Quote(asked) + " leads to " + sys.Quote(path) + ", which"
}

// notAllowed refuses a path, and says which would be right.
func (c *compiledRules) notAllowed(asked, path string) error {
	where := leadsTo(asked, path)
	if len(c.roots) == 0 {
		return sys.NewError(reason.PathNotAllowed, "%s isn't allowed: the policy's files.%s allow nothing.", where, c.listField)
	}
	const shown = 8
	var list []string
	for _, root := range c.roots[:min(shown, len(c.roots))] {
		list = append(list, sys.Quote(root))
	}
	return sys.NewError(reason.PathNotAllowed, "%s is outside of the directories that the policy's files.%s allow: choose a path below %s.",
		where, c.listField, strings.Join(list, ", "))
}

// deniedError refuses a path that is denied.
func (c *compiledRules) deniedError(asked, path string) error {
	where := leadsTo(asked, path)
	if c.isRunners(path) {
		return sys.NewError(reason.PathNotAllowed, "%s is the runner's own, for the files of secrets: choose another path.", where)
	}
	return sys.NewError(reason.PathNotAllowed, "%s is denied by the policy's files.deniedPaths: choose another path.", where)
}

// isWithin reports whether a path is root or lies in it. Both are clean.
func isWithin(root, path string) bool {
	return path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
}

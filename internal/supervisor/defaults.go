package supervisor

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/envresolve"
)

// fallbackHome is the home directory, in temporaryDir, of users who can't write to the image's.
const fallbackHome = ".home"

// addDefaults sets what processes expect and no source sets: output that isn't kept back in a buffer, a home directory that
// can be written to, and that git trusts the directories of other owners. They count as variables of the image.
func addDefaults(plan *envresolve.Plan, r *envresolve.Resolved) {
	v := newVariables(plan, r)
	if _, source := v.get("PYTHONUNBUFFERED"); source == "" {
		v.set("PYTHONUNBUFFERED", "1")
	}
	v.setHome()
	v.trustDirectories()
}

// variables are those of a process, with what is set after all sources.
type variables struct {
	plan envresolve.Plan
	*envresolve.Resolved
}

func newVariables(plan *envresolve.Plan, r *envresolve.Resolved) *variables {
	v := &variables{plan: *plan, Resolved: r}
	v.plan.Trusted = false // what is blocked of the image's variables is blocked in a trusted call too
	return v
}

func (v *variables) find(name string) (at int, found bool) {
	return slices.BinarySearchFunc(v.Vars, name, func(r envresolve.ResolvedVar, name string) int { return strings.Compare(r.Name, name) })
}

// get returns a variable and its source; the source is empty for one that isn't set.
func (v *variables) get(name string) (value string, source envresolve.Source) {
	at, found := v.find(name)
	if !found {
		return "", ""
	}
	return v.Env[at][len(name)+1:], v.Vars[at].Source
}

// set sets a variable, unless it is blocked. One that is set keeps its source.
func (v *variables) set(name, value string) {
	at, found := v.find(name)
	switch {
	case found:
		v.Env[at] = name + "=" + value
	case !v.plan.Blocks(name):
		v.Env = slices.Insert(v.Env, at, name+"="+value)
		v.Vars = slices.Insert(v.Vars, at, envresolve.ResolvedVar{Name: name, Source: envresolve.SourceImage})
	}
}

// setHome sets a home directory that can be written to, unless a source other than the image sets one.
func (v *variables) setHome() {
	if home, source := v.get(homeVariable); source == "" || source == envresolve.SourceImage && !isWritable(home) {
		if own := path.Join(temporaryDir, fallbackHome); makeHome(own) {
			v.set(homeVariable, own)
		}
	}
}

// Variables through which git gets configuration that comes on top of its files.
const (
	gitCount = "GIT_CONFIG_COUNT"
	gitKey   = "GIT_CONFIG_KEY_"
	gitValue = "GIT_CONFIG_VALUE_"
)

// trustDirectories lets git work in directories whose owner isn't this user, such as the top of a volume and a repository of the image.
// Git's check protects nobody here: all calls run as one user.
func (v *variables) trustDirectories() {
	given, source := v.get(gitCount)
	count, err := strconv.Atoi(given)
	key, value := gitKey+strconv.Itoa(count), gitValue+strconv.Itoa(count)
	// Git works with all that are counted only.
	if source != "" && err != nil || slices.ContainsFunc([]string{gitCount, key, value}, v.plan.Blocks) {
		return
	}
	v.set(key, "safe.directory")
	v.set(value, "*")
	v.set(gitCount, strconv.Itoa(count+1))
}

// isWritable says whether this user can make files in a directory.
func isWritable(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir() && path.IsAbs(dir) && unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil
}

// makeHome makes a directory, and reports whether it is there for this user.
func makeHome(dir string) bool {
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		return true
	}
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && isWritable(dir)
}

package supervisor

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/spec"
)

// snippetName is the name of a snippet's file, without its suffix: no module that somebody imports is called so.
const snippetName = "toolcall_snippet"

// language is what an interpreter looks at beside a snippet.
type language struct {
	// suffix is that of its files.
	suffix string
	// imports is the variable with the directories in which it looks for modules; empty for none.
	imports string
	// beside says that it looks for modules beside the file that imports them.
	beside bool
}

// languages are by the names that spec.Language gives them.
var languages = map[string]language{
	"python":     {suffix: ".py", imports: "PYTHONPATH"},
	"javascript": {suffix: ".js", imports: "NODE_PATH", beside: true},
	"typescript": {suffix: ".ts", imports: "NODE_PATH", beside: true},
	"ruby":       {suffix: ".rb", imports: "RUBYLIB", beside: true},
	"perl":       {suffix: ".pl", imports: "PERL5LIB"},
	"bash":       {suffix: ".sh"},
	"sh":         {suffix: ".sh"},
	"go":         {suffix: ".go"},
	"java":       {suffix: ".java"},
	"php":        {suffix: ".php"},
	"r":          {suffix: ".R"},
	"lua":        {suffix: ".lua"},
	"rust":       {suffix: ".rs"},
	"kotlin":     {suffix: ".kts"},
}

// addSnippet makes a file of the call's snippet, which imports modules as if it were in the call's directory, whose name is its path. It
// returns the file's path.
func (p *prepared) addSnippet(a *wire.Assignment, dir *os.File) (string, error) {
	as := languages[spec.Language(a.Language)]
	name := snippetName + as.suffix
	if err := p.files.write(name, a.Source); err != nil {
		return "", err
	}
	v := newVariables(&a.Environment, &p.Resolved)
	if as.imports != "" {
		value, _ := v.get(as.imports)
		v.set(as.imports, strings.TrimSuffix(dir.Name()+":"+value, ":"))
	}
	if as.beside {
		p.files.link(dir)
	}
	return path.Join(p.files.path, name), nil
}

// maxLinks bounds how many files of a directory get links. A program that looks for others by their own paths finds them.
const maxLinks = 1000

// packages is where programs of JavaScript look for what is installed, beside their file and in each directory above.
const packages = "node_modules"

// link makes what is in a directory appear beside the private files, where a module can be looked for. What can't be linked
// isn't found. A package.json says how the files beside it are read, and isn't about the snippet. Packages may lie in a directory
// above.
func (f *privateFiles) link(dir *os.File) {
	from, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return
	}
	defer from.Close()
	names, _ := from.Readdirnames(maxLinks)
	for _, name := range names {
		if name != "package.json" {
			_ = f.own.Symlink(path.Join(dir.Name(), name), name)
		}
	}
	if !slices.Contains(names, packages) {
		_ = f.own.Symlink(path.Join(packagesAbove(dir.Name()), packages), packages)
	}
}

// packagesAbove returns the closest directory above dir that has packages, or dir where none has: the snippet may install some there.
func packagesAbove(dir string) string {
	for at := dir; ; at = path.Dir(at) {
		if _, err := os.Stat(path.Join(at, packages)); err == nil {
			return at
		}
		if at == path.Dir(at) {
			return dir
		}
	}
}

package programs

import (
	"path/filepath"
	"slices"
	"strings"
)

// gitHelpers: git runs its commands from its own directory. Some of them are shell scripts.
var gitHelpers = []string{
	"/usr/lib/git-core/", "/usr/libexec/git-core/", "sh", "basename", "dirname", "sed", "uname", "cat", "tr",
	"gettext", "gettext.sh", "ngettext", "envsubst",
}

// compilerHelpers: a compiler driver runs the compiler, the assembler and the linker.
var compilerHelpers = []string{
	"as", "ld", "ld.bfd", "ld.gold", "ld.lld", "objcopy", "/usr/lib/gcc/*/*/", "/usr/libexec/gcc/*/*/", "/usr/lib/gcc-cross/*/*/",
}

// manHelpers: man has other programs format the page.
var manHelpers = []string{
	"sh", "/usr/libexec/man-db/", "/usr/lib/man-db/", "preconv", "tbl", "nroff", "groff", "troff", "grotty", "col", "locale", "gzip",
}

// helperTable is what common programs execute themselves, beside what their arguments ask for. A name is that of the
// policy's entry or of the file that it leads to, without a version. A rule of thumb keeps it short: what a program
// executes in its ordinary work, and sh for what uses system(3).
var helperTable = []struct{ programs, helpers []string }{
	{[]string{"git"}, gitHelpers},
	{[]string{"gcc", "g++", "cc", "c++", "cpp", "clang", "clang++"}, compilerHelpers},
	{[]string{"make", "gmake", "ninja", "perl", "php", "ruby", "node", "nodejs", "awk", "gawk", "mawk", "sort"}, []string{"sh"}},
	// Its library asks ldconfig for shared libraries, and uname for the name of the system.
	{[]string{"python"}, []string{"sh", "ldconfig", "uname"}},
	{[]string{"man"}, manHelpers},
	{[]string{"npm", "npx", "yarn", "pnpm"}, []string{"node", "sh", "env"}},
	{[]string{"pip"}, []string{"python3", "sh", "ldconfig", "uname"}},
	{[]string{"go"}, []string{
		"/usr/local/go/pkg/tool/", "/usr/lib/go*/pkg/tool/", "gcc", "as", "ld", "/usr/lib/gcc/*/*/", "/usr/libexec/gcc/*/*/",
	}},
	{[]string{"cargo"}, []string{"rustc", "cc", "gcc", "as", "ld", "/usr/lib/gcc/*/*/", "/usr/libexec/gcc/*/*/"}},
	{[]string{"rustc"}, append([]string{"cc", "gcc"}, compilerHelpers...)},
	{[]string{"tar"}, []string{"sh", "gzip", "bzip2", "bunzip2", "bzcat", "xz", "zstd"}},
	{[]string{"zgrep"}, []string{"sh", "gzip", "grep", "sed"}},
	{[]string{"zcat"}, []string{"sh", "gzip"}},
	{[]string{"gunzip"}, []string{"sh", "gzip", "uncompress"}},
	// These are one file, with a name for each way to use it.
	{[]string{"bzip"}, []string{"bunzip2", "bzcat"}},
	{[]string{"unzip"}, []string{"zipinfo"}},
	{[]string{"zip"}, []string{"sh", "unzip"}},
	{[]string{"patch"}, []string{"ed"}},
	{[]string{"dpkg"}, []string{"dpkg-query", "dpkg-deb"}},
	{[]string{"ldd"}, []string{"sh", "bash"}},
}

// systemPrefixes hold many programs that don't belong together.
var systemPrefixes = []string{"/", "/usr", "/usr/local", "/opt", "/home", "/root"}

// interpreterNames are programs below whose own prefix everything belongs to them: /opt/python/bin/pip.
var interpreterNames = []string{"python", "node", "ruby", "perl", "php", "java", "go"}

// helpersOf returns what a program needs: names, paths and globs. Entry is how the policy names it, real the file.
func helpersOf(entry, real string, own map[string][]string) []string {
	var helpers []string
	names := slices.Compact([]string{unversioned(filepath.Base(entry)), unversioned(filepath.Base(real))})
	for _, name := range names {
		for _, row := range helperTable {
			if slices.Contains(row.programs, name) {
				helpers = append(helpers, row.helpers...)
			}
		}
		if prefix := ownPrefix(real); prefix != "" && slices.Contains(interpreterNames, name) {
			helpers = append(helpers, prefix+"/bin/", prefix+"/lib/", prefix+"/libexec/")
		}
	}
	return append(helpers, own[entry]...)
}

// unversioned is python for python3.11 and gcc for x86_64-linux-gnu-gcc-12.
func unversioned(name string) string {
	name = strings.TrimRight(name, "0123456789.-")
	for _, compiler := range []string{"gcc", "g++", "cpp"} {
		if strings.HasSuffix(name, "-"+compiler) {
			return compiler
		}
	}
	return name
}

// ownPrefix is the directory above the bin directory of a program, unless others live there too.
func ownPrefix(real string) string {
	dir := filepath.Dir(real)
	if filepath.Base(dir) != "bin" {
		return ""
	}
	if prefix := filepath.Dir(dir); !slices.Contains(systemPrefixes, prefix) {
		return prefix
	}
	return ""
}

package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox"
)

// lookProgram looks up the program of argv in the PATH of the command. It leaves a name with a slash as it is; the kernel
// resolves it from the directory of the command. It skips relative elements of PATH: the call may choose the directory,
// but not what a name means. With a domain it prefers a program that may be executed, as the domain's rules do.
func lookProgram(argv, env []string, domain *sandbox.Domain) (string, error) {
	if len(argv) == 0 || argv[0] == "" {
		return "", notFound("There is no command to run.")
	}
	name := argv[0]
	if strings.ContainsRune(name, '/') {
		return name, nil
	}
	path := Variable(env, "PATH")
	refused, found := "", ""
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, name)
		info, err := os.Stat(file)
		if err != nil || info.IsDir() {
			continue
		}
		if unix.Access(file, unix.X_OK) == nil {
			if domain == nil || domain.Allows(file) {
				return file, nil
			}
			if found == "" {
				found = file
			}
			continue
		}
		if refused == "" {
			refused = file
		}
	}
	if found != "" {
		return found, nil
	}
	return "", notFound(notInPath(name, path, refused))
}

// builtins are commands of shells which are mostly no programs too.
var builtins = []string{"cd", "export", "source", "alias", "ulimit", "umask", "set", "eval"}

// shellSyntax are characters that mean something to shells, and are hardly ever part of a program's name.
const shellSyntax = "|&;<>()$`'\"\\*?~="

// wordsHint helps who wrote a whole command line, or a command of shells, where a program belongs; empty for any other word.
func wordsHint(program string) string {
	switch {
	case slices.Contains(builtins, program):
		return " It is a command of shells: use a shell call."
	case len(strings.Fields(program)) > 1:
		return " A structured call's binary is one program, and args are its arguments."
	case strings.ContainsAny(program, shellSyntax):
		return " No shell reads it: use a shell call."
	}
	return ""
}

func notInPath(name, path, refused string) string {
	switch {
	case refused != "":
		return quote(refused) + " can't be executed: permission denied."
	case path == "":
		return quote(name) + " was not found: the command has no PATH."
	default:
		return fmt.Sprintf("%s was not found in PATH (%s).%s", quote(name), path, wordsHint(name))
	}
}

// Variable returns the value that getenv(3) finds: the first of that name; empty for none.
func Variable(env []string, name string) string {
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

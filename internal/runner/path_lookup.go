package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lookProgram finds the program of argv in the PATH that the command itself will have. A name with a slash
// is left as it is, for the kernel to resolve from the command's directory. Relative elements of PATH are
// passed over: the directory is the caller's to choose, the program isn't.
func lookProgram(argv, env []string) (string, error) {
	if len(argv) == 0 || argv[0] == "" {
		return "", notFound("There is no command to run.")
	}
	name := argv[0]
	if strings.ContainsRune(name, '/') {
		return name, nil
	}
	path := variable(env, "PATH")
	refused := ""
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
			return file, nil
		}
		if refused == "" {
			refused = file
		}
	}
	return "", notFound(notInPath(name, path, refused))
}

func notInPath(name, path, refused string) string {
	switch {
	case refused != "":
		return quote(refused) + " may not be executed: permission denied."
	case path == "":
		return quote(name) + " was not found: the command has no PATH."
	default:
		return fmt.Sprintf("%s was not found in PATH (%.1000s).", quote(name), path)
	}
}

// variable is the value that a process would see: the first of that name.
func variable(env []string, name string) string {
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// Command kubectl-toolcall is a plugin of kubectl: put it into PATH and call it as "kubectl toolcall".
//
// Results go to standard output, and what a person should know to standard error. What it does is in
// internal/plugin. Under the name kubectl_complete-toolcall it completes its own command line for kubectl.
package main

import (
	"os"
	"path/filepath"
	"strings"

	"toolcall.dev/operator/internal/plugin"
)

func main() {
	args := os.Args[1:]
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl_complete-") {
		args = append([]string{"__complete"}, args...)
	}
	os.Exit(plugin.Main(args))
}

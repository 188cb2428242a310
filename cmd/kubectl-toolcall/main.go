// Command kubectl-toolcall is a kubectl plugin: put it in PATH and run it as "kubectl toolcall". internal/plugin
// implements it. Under the name kubectl_complete-toolcall, it completes command lines for kubectl.
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

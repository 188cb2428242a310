// Package built finds what tests start and what hack/test-programs.sh built: programs of the project and of others, and
// packages of Node.js. It builds nothing itself, so that no test's time limit covers a build.
//
// A program is as old as its last build: run `make test-programs` after a change.
package built

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Program returns the absolute path of a program of the project: manager, runner, kubectl-toolcall or mcp.
func Program(name string) (string, error) { return find("bin", name) }

// Helper returns the absolute path of a program that only tests start: cluster, images, helm or collector.
func Helper(name string) (string, error) { return find("bin", "test", name) }

// NodeModules returns the absolute path of the node_modules folder with the given installation.
func NodeModules(name string) (string, error) {
	return find("bin", "test", "node", name, "node_modules")
}

func find(elem ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(append([]string{root}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s isn't built: run `make test-programs`", filepath.Join(elem...))
	}
	return path, nil
}

// Root looks upward for the folder of the project's go.mod; a test begins in its package's folder.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the project's folder: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find the project's folder: no go.mod in this folder or above")
		}
	}
}

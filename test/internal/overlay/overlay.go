// Package overlay writes kustomizations as a user would: config/namespaced for other namespaces than its own.
package overlay

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// example is the namespace in config/namespaced.
const example = "toolcall-demo"

// Namespaced writes to an empty folder what installs the operator for some namespaces: the project's overlay, with these
// in the example's place.
func Namespaced(root, folder string, namespaces ...string) error {
	// Kustomize follows symbolic links before it goes up.
	real, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return fmt.Errorf("find the folder: %w", err)
	}
	config, err := filepath.Rel(real, filepath.Join(root, "config"))
	if err != nil {
		return fmt.Errorf("find the way to config: %w", err)
	}
	replace := strings.NewReplacer(
		"  - ../default\n", "  - "+config+"/default\n",
		"  - "+example+"\n", "  - "+strings.Join(namespaces, "\n  - ")+"\n",
		"--namespaces="+example, "--namespaces="+strings.Join(namespaces, ","),
	)
	if err := rewrite(filepath.Join(root, "config", "namespaced"), folder, replace); err != nil {
		return err
	}
	for _, namespace := range namespaces {
		one := strings.NewReplacer("namespace: "+example, "namespace: "+namespace, "../namespace", "../"+config+"/namespaced/namespace")
		if err := rewrite(filepath.Join(root, "config", "namespaced", example), filepath.Join(folder, namespace), one); err != nil {
			return err
		}
	}
	return nil
}

// rewrite copies a folder's kustomization into another folder, changed.
func rewrite(from, to string, replace *strings.Replacer) error {
	text, err := os.ReadFile(filepath.Join(from, "kustomization.yaml"))
	if err != nil {
		return fmt.Errorf("read the overlay: %w", err)
	}
	return errors.Join(os.MkdirAll(to, 0o700), os.WriteFile(filepath.Join(to, "kustomization.yaml"), []byte(replace.Replace(string(text))), 0o600))
}

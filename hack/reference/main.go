// Command reference writes a page for each kind of the API: every field with its type, default, bounds, rules and
// description, and the values and reasons that a client meets.
//
// It reads the Go types (order of the fields, named values, conditions and reasons with their comments) and the
// CustomResourceDefinitions that were generated from them (what the API server enforces, and what kubectl explain
// says). A field that only one of the two has is an error: they would be out of step.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

type options struct {
	types, crds, out string
}

func main() {
	var o options
	flag.StringVar(&o.types, "types", "api/v1alpha1", "folder of the Go types")
	flag.StringVar(&o.crds, "crds", "config/crd", "folder of the CustomResourceDefinitions")
	flag.StringVar(&o.out, "out", "docs/reference", "folder of the pages")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	source, err := readSource(o.types)
	if err != nil {
		return err
	}
	definitions, err := filepath.Glob(filepath.Join(o.crds, "toolcall.dev_*.yaml"))
	if err != nil {
		return err
	}
	if len(definitions) == 0 {
		return errors.New("no CustomResourceDefinition in " + o.crds + ": run controller-gen first")
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for _, path := range definitions {
		d, err := readDefinition(path)
		if err != nil {
			return err
		}
		text, err := page(source, d)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		name := strings.ToLower(d.Spec.Names.Kind) + ".md"
		if err := os.WriteFile(filepath.Join(o.out, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

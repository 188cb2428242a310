// Command render writes files for programs that check manifests and can't render them: what the chart and each kustomization install, and
// the JSON schemas of Kubernetes' kinds, from its OpenAPI document.
//
// usage: render CHECKOUT SWAGGER FOLDER
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"toolcall.dev/operator/hack/release/manifests"
)

const kubeVersion = "v1.37.0"

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: render CHECKOUT SWAGGER FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(checkout, swagger, folder string) error {
	for _, config := range []string{"default", "namespaced", "store", "console", "mcp"} {
		raw, err := manifests.Kustomize(filepath.Join(checkout, "config", config))
		if err != nil {
			return err
		}
		if err := write(folder, "manifests", config+".yaml", raw); err != nil {
			return err
		}
	}
	on := map[string]any{"enabled": true}
	for name, values := range map[string]map[string]any{
		"chart": nil, "chart-all": {"console": on, "mcp": on, "networkPolicy": on, "namespaces": []any{"team"}},
	} {
		raw, err := manifests.Chart(filepath.Join(checkout, "charts", "toolcall-operator"), values,
			manifests.Release{Name: "r", Namespace: "toolcall-system", KubeVersion: kubeVersion})
		if err != nil {
			return err
		}
		if err := write(folder, "manifests", name+".yaml", raw); err != nil {
			return err
		}
	}
	document, err := os.ReadFile(swagger)
	if err != nil {
		return fmt.Errorf("read the OpenAPI document: %w", err)
	}
	schemas, err := schemasOf(document)
	if err != nil {
		return err
	}
	for name, schema := range schemas {
		if err := write(folder, "schemas", name+".json", schema); err != nil {
			return err
		}
	}
	return nil
}

func write(folder, kind, name string, content []byte) error {
	dir := filepath.Join(folder, kind)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
		return fmt.Errorf("write what was rendered: %w", err)
	}
	return nil
}

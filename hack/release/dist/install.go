package dist

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/hack/release/manifests"
)

// Names that config/ and the chart have for the images that they install. The chart has a store, a console and the MCP server besides.
var (
	installed   = []string{"manager", "runner"}
	charted     = append(slices.Clone(installed), storeProgram, consoleProgram, "mcp")
	development = func(program string) string { return "toolcall.dev/" + program }
)

// pinned is the full name of an image of the release.
func (r *release) pinned(program string) string {
	return r.Options.image(program) + ":" + r.Version + "@" + r.digests[program].String()
}

// install writes what kubectl apply takes: install.yaml, and crds.yaml with the kinds alone.
func (r *release) install(context.Context) error {
	r.Say("rendering install.yaml and crds.yaml")
	all, err := manifests.Kustomize(filepath.Join(r.Source, "config", "default"))
	if err != nil {
		return err
	}
	for _, program := range installed {
		if all, err = replaceOnce(all, development(program)+":dev", r.pinned(program)); err != nil {
			return fmt.Errorf("name the image of %s in config/default: %w", program, err)
		}
	}
	if err := r.write("install.yaml", all); err != nil {
		return err
	}
	for _, program := range []string{"mcp", consoleProgram, storeProgram} {
		if err := r.extra(program); err != nil {
			return err
		}
	}
	var kinds [][]byte
	for _, doc := range manifests.Split(all) {
		o := manifests.Object{}
		if err := yaml.Unmarshal(doc, &o); err != nil {
			return fmt.Errorf("read an object of config/default: %w", err)
		}
		if o.Kind() == "CustomResourceDefinition" {
			kinds = append(kinds, doc)
		}
	}
	return r.write("crds.yaml", bytes.Join(kinds, []byte("---\n")))
}

// extra writes what is installed beside the operator, by a folder of config/ with one image: the MCP server, the
// console, the output store.
func (r *release) extra(program string) error {
	all, err := manifests.Kustomize(filepath.Join(r.Source, "config", program))
	if err != nil {
		return err
	}
	if all, err = replaceOnce(all, development(program)+":dev", r.pinned(program)); err != nil {
		return fmt.Errorf("name the image of config/%s: %w", program, err)
	}
	return r.write(program+".yaml", all)
}

func replaceOnce(text []byte, old, with string) ([]byte, error) {
	if n := bytes.Count(text, []byte(old)); n != 1 {
		return nil, fmt.Errorf("%q is there %d times and not once", old, n)
	}
	return bytes.Replace(text, []byte(old), []byte(with), 1), nil
}

// chart packs the Helm chart, with the release's images as its default values.
func (r *release) chart(context.Context) error {
	r.Say("packing the Helm chart")
	const name = "toolcall-operator"
	dir := filepath.Join(r.Source, "charts", name)
	files, err := manifests.Files(dir)
	if err != nil {
		return err
	}
	version := strings.TrimPrefix(r.Version, "v")
	var entries []entry
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read the chart: %w", err)
		}
		inside, err := filepath.Rel(dir, path)
		if err != nil {
			return fmt.Errorf("read the chart: %w", err)
		}
		if content, err = r.released(inside, version, content); err != nil {
			return fmt.Errorf("%s of the chart: %w", inside, err)
		}
		entries = append(entries, entry{name: name + "/" + filepath.ToSlash(inside), mode: 0o644, content: content})
	}
	packed, err := tarGz(entries)
	if err != nil {
		return fmt.Errorf("pack the chart: %w", err)
	}
	return r.write(name+"-"+version+".tgz", packed)
}

// released is a file of the chart as it is in the release.
func (r *release) released(file, version string, content []byte) ([]byte, error) {
	type change struct{ old, with string }
	var changes []change
	switch file {
	case "Chart.yaml":
		changes = []change{{"\nversion: 0.0.0-dev\n", "\nversion: " + version + "\n"}, {"\nappVersion: dev\n", "\nappVersion: " + r.Version + "\n"}}
	case "values.yaml":
		for _, program := range charted {
			const between = "\n  # The chart's appVersion when empty.\n  tag: \"\"\n  # sha256:..., pins the image whatever the tag says.\n  digest: "
			changes = append(changes, change{
				"  repository: " + development(program) + between + `""`,
				"  repository: " + r.Options.image(program) + strings.Replace(between, `""`, r.Version, 1) + r.digests[program].String(),
			})
		}
	}
	var err error
	for _, c := range changes {
		if content, err = replaceOnce(content, c.old, c.with); err != nil {
			return nil, err
		}
	}
	return content, nil
}

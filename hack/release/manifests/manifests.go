// Package manifests renders what is installed: the kustomization, and the Helm chart beside it.
//
// It reads folders of a checkout and returns objects as they would be sent to the API server. It talks to no
// cluster and writes nothing.
package manifests

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Object is one object of a manifest.
type Object map[string]any

// Kind of the object.
func (o Object) Kind() string { return text(o["kind"]) }

// Name tells the objects of a manifest apart.
func (o Object) Name() string {
	meta, _ := o["metadata"].(map[string]any)
	return strings.Join([]string{text(o["apiVersion"]), o.Kind(), text(meta["namespace"]), text(meta["name"])}, "/")
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// Kustomize renders a kustomization.
func Kustomize(dir string) ([]byte, error) {
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("render the kustomization %s: %w", dir, err)
	}
	return all.AsYaml()
}

// Release is what Helm tells a chart, besides the values.
type Release struct {
	Name, Namespace, KubeVersion string
}

// Chart renders a Helm chart with values over its own, which are checked against its schema.
func Chart(dir string, values map[string]any, r Release) ([]byte, error) {
	chart, err := loader.Load(dir)
	if err != nil {
		return nil, fmt.Errorf("load the chart %s: %w", dir, err)
	}
	version, err := common.ParseKubeVersion(r.KubeVersion)
	if err != nil {
		return nil, fmt.Errorf("version %q of Kubernetes: %w", r.KubeVersion, err)
	}
	caps := *common.DefaultCapabilities
	caps.KubeVersion = *version
	options := common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true}
	given, err := util.ToRenderValues(chart, values, options, &caps)
	if err != nil {
		return nil, fmt.Errorf("values of the chart %s: %w", dir, err)
	}
	files, err := engine.Render(chart, given)
	if err != nil {
		return nil, fmt.Errorf("render the chart %s: %w", dir, err)
	}
	var whole bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) == ".yaml" {
			fmt.Fprintf(&whole, "---\n%s\n", files[name])
		}
	}
	return whole.Bytes(), nil
}

// Parse reads the objects of a manifest, by name.
func Parse(manifest []byte) (map[string]Object, error) {
	objects := map[string]Object{}
	for _, doc := range Split(manifest) {
		o := Object{}
		if err := yaml.UnmarshalStrict(doc, &o); err != nil {
			return nil, fmt.Errorf("an object of the manifest: %w", err)
		}
		if len(o) == 0 {
			continue
		}
		if objects[o.Name()] != nil {
			return nil, fmt.Errorf("%s is there twice", o.Name())
		}
		objects[o.Name()] = o
	}
	return objects, nil
}

// releaseLabels are what the chart's objects have besides what the kustomization gives them.
var releaseLabels = []string{"helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"}

// DropReleaseLabels removes the labels that only the chart's objects have, so that they can be compared with the kustomization's. An
// object that lacks one is an error.
func DropReleaseLabels(objects map[string]Object) error {
	for name, o := range objects {
		meta, _ := o["metadata"].(map[string]any)
		labels, _ := meta["labels"].(map[string]any)
		for _, label := range releaseLabels {
			if text(labels[label]) == "" {
				return fmt.Errorf("%s has no label %s", name, label)
			}
			delete(labels, label)
		}
		if len(labels) == 0 {
			delete(meta, "labels")
		}
	}
	return nil
}

// Split takes a manifest apart at its separators.
func Split(manifest []byte) [][]byte {
	var docs [][]byte
	for _, doc := range bytes.Split(append([]byte("\n"), manifest...), []byte("\n---\n")) {
		if len(bytes.TrimSpace(doc)) > 0 {
			docs = append(docs, append(bytes.TrimSpace(doc), '\n'))
		}
	}
	return docs
}

// Files lists the files below a folder, in the order of their names.
func Files(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	return files, nil
}

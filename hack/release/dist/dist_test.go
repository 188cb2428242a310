package dist_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"

	"toolcall.dev/operator/hack/release/dist"
	"toolcall.dev/operator/hack/release/manifests"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

func options(out string) *dist.Options {
	source, err := filepath.Abs("../../..")
	if err != nil {
		panic(err)
	}
	return &dist.Options{
		Source: source, Out: out, Version: "v9.8.7", Registry: "registry.test/team", Commit: commit,
		SourceURL: "https://example.test/source", Licenses: "Apache-2.0",
		Architectures: []string{"amd64", "arm64"}, PluginPlatforms: []string{"linux/amd64"}, Say: func(string, ...any) {},
	}
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// A whole release of this checkout, made twice: it takes the time of linking eight programs.
func TestARelease(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the operator for two architectures, twice")
	}
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	// The second takes the place of an earlier release.
	if err := os.MkdirAll(filepath.Join(two, "images", "gone"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(two, "checksums.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{one, two} {
		if err := dist.Make(context.Background(), options(out)); err != nil {
			t.Fatal(err)
		}
	}
	if first, second := read(t, one, "checksums.txt"), read(t, two, "checksums.txt"); !bytes.Equal(first, second) {
		t.Errorf("the same checkout gives two releases:\n%s\n%s", first, second)
	}
	if _, err := os.Stat(filepath.Join(two, "images", "gone")); err == nil {
		t.Error("something of the earlier release is still there")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	t.Run("checksums", func(t *testing.T) { checkSums(t, one) })
	digests := map[string]string{}
	for _, program := range []string{"manager", "runner", "mcp", "console", "store"} {
		t.Run("image of "+program, func(t *testing.T) { digests[program] = checkImage(t, one, program) })
		t.Run("bill of materials of "+program, func(t *testing.T) { checkSBOM(t, one, program) })
	}
	t.Run("install.yaml", func(t *testing.T) { checkInstall(t, one, digests) })
	for _, program := range []string{"mcp", "console", "store"} {
		t.Run(program+".yaml", func(t *testing.T) {
			if image := "registry.test/team/toolcall-" + program + ":v9.8.7@" + digests[program]; strings.Count(string(read(t, one, program+".yaml")), image) != 1 {
				t.Errorf("%s.yaml hasn't %s", program, image)
			}
		})
	}
	t.Run("chart", func(t *testing.T) { checkChart(t, one) })
	t.Run("plugin", func(t *testing.T) { checkPlugin(t, one) })
	t.Run("version", func(t *testing.T) { checkVersion(t, one) })
}

// checkSums has the tool that users have look at them.
func checkSums(t *testing.T, dir string) {
	cmd := exec.Command("sha256sum", "--check", "--strict", "--quiet", "checksums.txt")
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	files, err := manifests.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	if listed := bytes.Count(read(t, dir, "checksums.txt"), []byte("\n")); listed != len(files)-1 || listed < 10 {
		t.Errorf("%d files, %d listed", len(files), listed)
	}
}

func checkImage(t *testing.T, dir, program string) (digest string) {
	path, err := layout.FromPath(filepath.Join(dir, "images", program))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	list, err := whole.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Manifests) != 3 || list.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v9.8.7" {
		t.Fatalf("the layout lists %+v", list.Manifests)
	}
	index, err := whole.ImageIndex(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	variants, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, d := range variants.Manifests {
		platforms = append(platforms, d.Platform.String())
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Config.User != "65532:65532" || !slices.Equal(cfg.Config.Entrypoint, []string{"/" + program}) {
			t.Errorf("%s runs %v as %s", d.Platform, cfg.Config.Entrypoint, cfg.Config.User)
		}
		for label, want := range map[string]string{
			"title": "toolcall-" + program, "url": "https://toolcall.dev", "version": "v9.8.7", "revision": commit, "source": "https://example.test/source", "licenses": "Apache-2.0",
		} {
			label = "org.opencontainers.image." + label
			if cfg.Config.Labels[label] != want || variants.Annotations[label] != want {
				t.Errorf("%s: label %s is %q, annotation %q", d.Platform, label, cfg.Config.Labels[label], variants.Annotations[label])
			}
		}
		if cfg.Config.Labels["org.opencontainers.image.description"] == "" {
			t.Errorf("%s: nothing says what it is: %v", d.Platform, cfg.Config.Labels)
		}
		files := tar.NewReader(mutate.Extract(img))
		if only, err := files.Next(); err != nil || only.Name != program {
			t.Errorf("%s: first file %+v, %v", d.Platform, only, err)
		}
		if more, err := files.Next(); err == nil {
			t.Errorf("%s: also %s", d.Platform, more.Name)
		}
	}
	if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("platforms %v", platforms)
	}
	return list.Manifests[0].Digest.String()
}

func checkSBOM(t *testing.T, dir, program string) {
	bom := &cyclonedx.BOM{}
	raw := read(t, dir, "sbom", program+"_linux_arm64.cdx.json")
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(raw), cyclonedx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	if c := bom.Metadata.Component; c.Name != program || c.Version != "v9.8.7" || (*c.Hashes)[0].Value == "" {
		t.Errorf("it is about %+v", c)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(*bom.Components, func(c cyclonedx.Component) bool {
			return c.Name == name && c.Version != "" && strings.HasPrefix(c.PackageURL, "pkg:golang/"+name+"@")
		})
	}
	// The runner is to stay free of Kubernetes' client, and the store needs none.
	if !has("std") || has("k8s.io/client-go") != (program != "runner" && program != "store") {
		t.Errorf("it lists %s", raw)
	}
}

func checkInstall(t *testing.T, dir string, digests map[string]string) {
	objects, err := manifests.Parse(read(t, dir, "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := manifests.Parse(read(t, dir, "crds.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range objects {
		if isKind := o.Kind() == "CustomResourceDefinition"; isKind != (kinds[name] != nil) {
			t.Errorf("%s is in crds.yaml: %v", name, !isKind)
		}
	}
	if len(kinds) != 6 || len(objects) < 20 {
		t.Errorf("%d objects, %d kinds", len(objects), len(kinds))
	}
	raw, err := json.Marshal(objects["apps/v1/Deployment/toolcall-system/toolcall-operator"])
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"image":"registry.test/team/toolcall-manager:v9.8.7@` + digests["manager"] + `"`,
		`"--runner-image=registry.test/team/toolcall-runner:v9.8.7@` + digests["runner"] + `"`,
	} {
		if !strings.Contains(string(raw), part) {
			t.Errorf("the Deployment hasn't %s: %s", part, raw)
		}
	}
}

// checkChart installs, with nothing said, what install.yaml does.
func checkChart(t *testing.T, dir string) {
	packed := filepath.Join(dir, "toolcall-operator-9.8.7.tgz")
	release := manifests.Release{Name: "r", Namespace: "toolcall-system", KubeVersion: "v1.36.0"}
	raw, err := manifests.Chart(packed, map[string]any{"crds": map[string]any{"keep": false}, "store": map[string]any{"enabled": false}}, release)
	if err != nil {
		t.Fatal(err)
	}
	got, err := manifests.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	want, err := manifests.Parse(read(t, dir, "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	delete(want, "v1/Namespace//toolcall-system")
	if err := manifests.DropReleaseLabels(got); err != nil {
		t.Error(err)
	}
	for name, o := range want {
		one, _ := json.Marshal(o)
		other, _ := json.Marshal(got[name])
		if !bytes.Equal(one, other) {
			t.Errorf("%s\nin install.yaml: %.2000s\nin the chart: %.2000s", name, one, other)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d objects, install.yaml has %d", len(got), len(want))
	}
	if text := fileOf(t, packed, "toolcall-operator/Chart.yaml"); !strings.Contains(text, "\nversion: 9.8.7\n") || !strings.Contains(text, "\nappVersion: v9.8.7\n") {
		t.Error(text)
	}
}

// checkPlugin asks the program in the archive, where this machine can run it.
func checkPlugin(t *testing.T, dir string) {
	archive := filepath.Join(dir, "plugin", "kubectl-toolcall_v9.8.7_linux_amd64.tar.gz")
	if licence := fileOf(t, archive, "LICENSE"); licence != string(read(t, options(dir).Source, "LICENSE")) {
		t.Errorf("another licence: %.100s", licence)
	}
	if runtime.GOARCH != "amd64" {
		return
	}
	program := filepath.Join(t.TempDir(), "kubectl-toolcall")
	if err := os.WriteFile(program, []byte(fileOf(t, archive, "kubectl-toolcall")), 0o755); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command(program, "version", "--client").CombinedOutput(); err != nil || !strings.Contains(string(output), "v9.8.7") {
		t.Errorf("%s, %v", output, err)
	}
}

func fileOf(t *testing.T, packed, name string) string {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(read(t, packed)))
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if header.Name == name {
			text, err := io.ReadAll(files)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
	}
}

func programOf(t *testing.T, dir, arch string) string {
	t.Helper()
	path, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	list, err := whole.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	index, err := whole.ImageIndex(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := partial.FindImages(index, match.Platforms(v1.Platform{OS: "linux", Architecture: arch}))
	if err != nil || len(images) != 1 {
		t.Fatalf("%d images for %s, %v", len(images), arch, err)
	}
	files := tar.NewReader(mutate.Extract(images[0]))
	if _, err := files.Next(); err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(files)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return program
}

func TestOptionsThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*dist.Options)
		message string
	}{
		"a version without a v":            {func(o *dist.Options) { o.Version = "1.2.3" }, "semantic version with a v"},
		"a version that isn't whole":       {func(o *dist.Options) { o.Version = "v1.2" }, "semantic version"},
		"a version no tag can have":        {func(o *dist.Options) { o.Version = "v1.2.3+x" }, "build metadata"},
		"a version with a shell's sign":    {func(o *dist.Options) { o.Version = "v1.2.3;id" }, "semantic version"},
		"no registry":                      {func(o *dist.Options) { o.Registry = "" }, "registry"},
		"a registry that can't be":         {func(o *dist.Options) { o.Registry = "https://x" }, "registry"},
		"a commit with flags in it":        {func(o *dist.Options) { o.Commit = commit + " -extld=x" }, "commit"},
		"an unknown architecture":          {func(o *dist.Options) { o.Architectures = []string{"riscv64"} }, "riscv64"},
		"no architecture":                  {func(o *dist.Options) { o.Architectures = nil }, "no architectures"},
		"an address krew won't take":       {func(o *dist.Options) { o.DownloadURL = "http://x" }, "https"},
		"docs with flags in their address": {func(o *dist.Options) { o.DocsURL = "https://x -extld=x" }, "documentation"},
		"a platform that isn't one":        {func(o *dist.Options) { o.PluginPlatforms = []string{"linux"} }, "linux/amd64"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out")
			o := options(out)
			test.change(o)
			if err := dist.Make(context.Background(), o); err == nil || !strings.Contains(err.Error(), test.message) {
				t.Errorf("got %v", err)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("something was made")
			}
		})
	}
}

func TestWhatIsNoReleaseIsNotReplaced(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	precious := filepath.Join(out, "precious")
	if err := os.WriteFile(precious, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := dist.Make(context.Background(), options(out)); err == nil || !strings.Contains(err.Error(), "holds no release") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

// A release that fails half way leaves the earlier one as it was.
func TestAReleaseThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	sums := filepath.Join(out, "checksums.txt")
	if err := os.WriteFile(sums, []byte("earlier"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := options(out)
	o.Source = t.TempDir()
	if err := dist.Make(context.Background(), o); err == nil {
		t.Error("a release was made of nothing")
	}
	if string(read(t, sums)) != "earlier" {
		t.Error("the earlier release is gone")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

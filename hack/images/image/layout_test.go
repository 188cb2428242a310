package image

import (
	"archive/tar"
	"context"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func multi(t *testing.T) Multi {
	t.Helper()
	dir := t.TempDir()
	var variants []Variant
	for _, arch := range []string{"amd64", "arm64"} {
		file := filepath.Join(dir, arch)
		write(t, file, "program for "+arch)
		variants = append(variants, Variant{Architecture: arch, Files: []File{{file, "/run"}}, SBOM: []byte(`{"for":"` + arch + `"}`)})
	}
	return Multi{
		Tag:         "v1",
		Config:      v1.Config{Entrypoint: []string{"/run"}, User: "65532:65532", Labels: map[string]string{"a": "b"}},
		Annotations: map[string]string{"c": "d"},
		Variants:    variants,
	}
}

func TestALayoutIsTheSameEachTimeAndHoldsNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all := map[string]string{}
	for _, out := range []string{"one", "two"} {
		if _, err := WriteLayout(filepath.Join(dir, out), multi(t)); err != nil {
			t.Fatal(err)
		}
		var files []string
		err := filepath.WalkDir(filepath.Join(dir, out), func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				files = append(files, strings.TrimPrefix(path, filepath.Join(dir, out))+" "+string(read(t, path)))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		all[out] = strings.Join(files, "\n")
	}
	if all["one"] != all["two"] {
		t.Error("the same files give two layouts")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".layout-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := WriteLayout(filepath.Join(dir, "one"), multi(t)); err == nil {
		t.Error("a folder that is there was written over")
	}
	if _, err := WriteLayout(filepath.Join(dir, "none"), Multi{}); err == nil {
		t.Error("an image without architectures was made")
	}
}

// newRegistry is a real one, in this process, without or with the API for referrers.
func newRegistry(t *testing.T, referrers bool) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(referrers), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestAPushedImageIsWhatIsPulledForEachArchitecture(t *testing.T) {
	t.Parallel()
	for title, referrers := range map[string]bool{"a registry with referrers": true, "an old registry": false} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "layout")
			want, err := WriteLayout(dir, multi(t))
			if err != nil {
				t.Fatal(err)
			}
			host := newRegistry(t, referrers)
			for range 2 {
				if got, err := Push(context.Background(), dir, host+"/team/x:v1"); err != nil || got.DigestStr() != want.String() {
					t.Fatalf("pushed %s, %v", got, err)
				}
			}
			for _, arch := range []string{"amd64", "arm64"} {
				checkPulled(t, host+"/team/x", arch)
			}
		})
	}
}

func TestAPushedTarballIsWhatIsPulled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, tarred := filepath.Join(dir, "program"), filepath.Join(dir, "image.tar")
	write(t, file, "program")
	binary := Binary{Tag: "example.test/x:1", Config: v1.Config{Entrypoint: []string{"/run"}}, Files: []File{{file, "/run"}}}
	if err := binary.Write(tarred); err != nil {
		t.Fatal(err)
	}
	host := newRegistry(t, true)
	for range 2 {
		pushed, err := Push(context.Background(), tarred, host+"/team/x:v1")
		if err != nil {
			t.Fatal(err)
		}
		img, err := remote.Image(pushed)
		if err != nil {
			t.Fatal(err)
		}
		files := tar.NewReader(mutate.Extract(img))
		if first, err := files.Next(); err != nil || first.Name != "run" {
			t.Fatalf("first file %+v, %v", first, err)
		}
		if text, err := io.ReadAll(files); err != nil || string(text) != "program" {
			t.Errorf("the program is %q, %v", text, err)
		}
	}
}

func checkPulled(t *testing.T, repository, arch string) {
	t.Helper()
	ref, err := name.ParseReference(repository + ":v1")
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := img.ConfigFile()
	if err != nil || cfg.Architecture != arch || cfg.Config.User != "65532:65532" || cfg.Config.Labels["a"] != "b" {
		t.Errorf("%s: configuration %+v, %v", arch, cfg, err)
	}
	if m, err := img.Manifest(); err != nil || m.Annotations["c"] != "d" {
		t.Errorf("%s: manifest %+v, %v", arch, m, err)
	}
	files := tar.NewReader(mutate.Extract(img))
	first, err := files.Next()
	if err != nil || first.Name != "run" || first.Mode != 0o755 {
		t.Fatalf("%s: first file %+v, %v", arch, first, err)
	}
	if text, err := io.ReadAll(files); err != nil || string(text) != "program for "+arch {
		t.Errorf("%s: the program is %q, %v", arch, text, err)
	}
	if more, err := files.Next(); err != io.EOF {
		t.Errorf("%s: more than the program: %+v", arch, more)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if text := sbomOf(t, ref.Context().Digest(digest.String())); text != `{"for":"`+arch+`"}` {
		t.Errorf("%s: the bill of materials is %q", arch, text)
	}
}

func sbomOf(t *testing.T, image name.Digest) string {
	t.Helper()
	referrers, err := remote.Referrers(image)
	if err != nil {
		t.Fatal(err)
	}
	list, err := referrers.IndexManifest()
	if err != nil || len(list.Manifests) != 1 || list.Manifests[0].ArtifactType != string(sbomType) {
		t.Fatalf("%s is referred to by %+v, %v", image, list, err)
	}
	artifact, err := remote.Image(image.Context().Digest(list.Manifests[0].Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := artifact.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	r, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWhatCannotBePushed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	layout := filepath.Join(dir, "layout")
	if _, err := WriteLayout(layout, multi(t)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "empty", "index.json"), `{"schemaVersion":2,"manifests":[]}`)
	write(t, filepath.Join(dir, "text"), "text")
	host := newRegistry(t, true)
	for title, test := range map[string]struct{ dir, target, message string }{
		"a folder that isn't a layout": {dir, host + "/x:1", "no OCI image layout"},
		"a layout without an image":    {filepath.Join(dir, "empty"), host + "/x:1", "holds 0 images"},
		"a file that isn't a tarball":  {filepath.Join(dir, "text"), host + "/x:1", "no tarball"},
		"a path where nothing is":      {filepath.Join(dir, "nothing"), host + "/x:1", "nothing to push"},
		"a target without a tag":       {layout, host + "/x", "target"},
		"a registry that isn't there":  {layout, "127.0.0.1:1/x:1", "push"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			if _, err := Push(context.Background(), test.dir, test.target); err == nil || !strings.Contains(err.Error(), test.message) {
				t.Errorf("got %v", err)
			}
		})
	}
}

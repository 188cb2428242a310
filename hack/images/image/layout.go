package image

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// AnnotationTag is where an OCI image layout says what tag its image is for.
const AnnotationTag = "org.opencontainers.image.ref.name"

// sbomType is the kind of a bill of materials that refers to an image.
const sbomType types.MediaType = "application/vnd.cyclonedx+json"

// Variant is an image for one architecture.
type Variant struct {
	Architecture string
	Files        []File
	// SBOM is what the files were made of, as CycloneDX JSON; nil for none.
	SBOM []byte
}

// Multi is an image for several architectures.
type Multi struct {
	// Tag of the layout; any text.
	Tag string
	// Config says how each variant is run.
	Config v1.Config
	// Annotations of the index and of each variant.
	Annotations map[string]string
	Variants    []Variant
}

// WriteLayout makes an OCI image layout in the folder dir, which must not be there, and returns the digest of the
// image's index. The bills of materials are in it as artifacts that refer to the variants.
func WriteLayout(dir string, m Multi) (v1.Hash, error) {
	if len(m.Variants) == 0 {
		return v1.Hash{}, errors.New("an image needs at least one architecture")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		return v1.Hash{}, errors.Join(fmt.Errorf("%s is there already: remove it first", dir), err)
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), ".layout-*")
	if err != nil {
		return v1.Hash{}, err
	}
	defer os.RemoveAll(work)
	whole := filepath.Join(work, "layout")
	digest, err := m.write(work, whole)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("layout %s: %w", dir, err)
	}
	return digest, os.Rename(whole, dir)
}

func (m *Multi) write(work, dir string) (v1.Hash, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var artifacts []v1.Image
	for _, variant := range m.Variants {
		img, err := m.variant(work, variant)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("for %s: %w", variant.Architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: variant.Architecture},
		}})
		if variant.SBOM == nil {
			continue
		}
		artifact, err := refer(img, variant.SBOM)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("bill of materials for %s: %w", variant.Architecture, err)
		}
		artifacts = append(artifacts, artifact)
	}
	index = mutate.Annotations(index, maps.Clone(m.Annotations)).(v1.ImageIndex)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{AnnotationTag: m.Tag})); err != nil {
		return v1.Hash{}, err
	}
	for _, artifact := range artifacts {
		if err := path.AppendImage(artifact); err != nil {
			return v1.Hash{}, err
		}
	}
	return index.Digest()
}

func (m *Multi) variant(work string, variant Variant) (v1.Image, error) {
	layer, err := filesLayer(filepath.Join(work, variant.Architecture+".tar"), variant.Files, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img, err := assemble(m.Config, variant.Architecture, layer)
	if err != nil {
		return nil, err
	}
	img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Annotations(img, maps.Clone(m.Annotations)).(v1.Image), nil
}

// refer makes an artifact that a registry lists as referring to the image.
func refer(img v1.Image, sbom []byte) (v1.Image, error) {
	subject, err := partial.Descriptor(img)
	if err != nil {
		return nil, err
	}
	artifact, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer(sbom, sbomType))
	if err != nil {
		return nil, err
	}
	artifact = mutate.ConfigMediaType(artifact, sbomType)
	return mutate.Subject(artifact, *subject).(v1.Image), nil
}

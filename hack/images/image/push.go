package image

import (
	"context"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Push sends the image of a tarball or of an OCI image layout to a registry, under a name and tag, and with a layout's
// what refers to it. It logs in as docker and crane do, with the credentials in ~/.docker/config.json. Pushing again
// changes nothing.
func Push(ctx context.Context, from, target string) (name.Digest, error) {
	tag, err := name.NewTag(target, name.StrictValidation)
	if err != nil {
		return name.Digest{}, fmt.Errorf("target %q: %w", target, err)
	}
	info, err := os.Stat(from)
	if err != nil {
		return name.Digest{}, fmt.Errorf("nothing to push: %w", err)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if info.IsDir() {
		return pushLayout(from, tag, options)
	}
	return pushTarball(from, tag, options)
}

func pushTarball(path string, tag name.Tag, options []remote.Option) (name.Digest, error) {
	img, err := tarball.ImageFromPath(path, nil)
	if err != nil {
		return name.Digest{}, fmt.Errorf("%s is no tarball of one image: %w", path, err)
	}
	if err := remote.Write(tag, img, options...); err != nil {
		return name.Digest{}, fmt.Errorf("push %s: %w", tag, err)
	}
	digest, err := img.Digest()
	if err != nil {
		return name.Digest{}, fmt.Errorf("read %s: %w", path, err)
	}
	return tag.Digest(digest.String()), nil
}

func pushLayout(dir string, tag name.Tag, options []remote.Option) (name.Digest, error) {
	path, err := layout.FromPath(dir)
	if err != nil {
		return name.Digest{}, fmt.Errorf("%s is no OCI image layout: %w", dir, err)
	}
	whole, err := path.ImageIndex()
	if err != nil {
		return name.Digest{}, fmt.Errorf("read %s: %w", dir, err)
	}
	manifest, err := whole.IndexManifest()
	if err != nil {
		return name.Digest{}, fmt.Errorf("read %s: %w", dir, err)
	}
	var pushed *v1.Hash
	for _, d := range manifest.Manifests {
		if !d.MediaType.IsIndex() {
			continue
		}
		if pushed != nil {
			return name.Digest{}, fmt.Errorf("%s holds more than one image", dir)
		}
		index, err := whole.ImageIndex(d.Digest)
		if err != nil {
			return name.Digest{}, fmt.Errorf("read %s: %w", d.Digest, err)
		}
		if err := remote.WriteIndex(tag, index, options...); err != nil {
			return name.Digest{}, fmt.Errorf("push %s: %w", tag, err)
		}
		pushed = &d.Digest
	}
	if pushed == nil {
		return name.Digest{}, fmt.Errorf("%s holds no image", dir)
	}
	return tag.Digest(pushed.String()), pushArtifacts(whole, manifest, tag.Repository, options)
}

// pushArtifacts follow the image that they refer to.
func pushArtifacts(whole v1.ImageIndex, manifest *v1.IndexManifest, to name.Repository, options []remote.Option) error {
	for _, d := range manifest.Manifests {
		if !d.MediaType.IsImage() {
			continue
		}
		artifact, err := whole.Image(d.Digest)
		if err != nil {
			return fmt.Errorf("read %s: %w", d.Digest, err)
		}
		if err := remote.Write(to.Digest(d.Digest.String()), artifact, options...); err != nil {
			return fmt.Errorf("push what refers to the image, %s: %w", d.Digest, err)
		}
	}
	return nil
}

package image

import (
	"context"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
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
	indexes, err := partial.FindIndexes(whole, func(d v1.Descriptor) bool { return d.MediaType.IsIndex() })
	if err != nil {
		return name.Digest{}, fmt.Errorf("read %s: %w", dir, err)
	}
	if len(indexes) != 1 {
		return name.Digest{}, fmt.Errorf("%s holds %d images, not one", dir, len(indexes))
	}
	if err := remote.WriteIndex(tag, indexes[0], options...); err != nil {
		return name.Digest{}, fmt.Errorf("push %s: %w", tag, err)
	}
	digest, err := indexes[0].Digest()
	if err != nil {
		return name.Digest{}, fmt.Errorf("read %s: %w", dir, err)
	}
	return tag.Digest(digest.String()), pushArtifacts(whole, tag.Repository, options)
}

// pushArtifacts follow the image that they refer to.
func pushArtifacts(whole v1.ImageIndex, to name.Repository, options []remote.Option) error {
	artifacts, err := partial.FindImages(whole, func(d v1.Descriptor) bool { return d.MediaType.IsImage() })
	if err != nil {
		return fmt.Errorf("read what refers to the image: %w", err)
	}
	for _, artifact := range artifacts {
		digest, err := artifact.Digest()
		if err != nil {
			return fmt.Errorf("read what refers to the image: %w", err)
		}
		if err := remote.Write(to.Digest(digest.String()), artifact, options...); err != nil {
			return fmt.Errorf("push what refers to the image, %s: %w", digest, err)
		}
	}
	return nil
}

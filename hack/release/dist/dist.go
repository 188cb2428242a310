package dist

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// release is one that is being made.
type release struct {
	*Options
	// work holds what is thrown away, and dir what becomes the folder of the release.
	work, dir string
	// digests of the images, by program.
	digests map[string]v1.Hash
	// archives of the plugin: SHA-256 by platform, as in linux_amd64.
	archives map[string]string
}

// Make writes a release. A folder of an earlier one is replaced; any other that isn't empty is left alone.
func Make(ctx context.Context, o *Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := replaceable(o.Out); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.Out), 0o755); err != nil {
		return fmt.Errorf("make the folder above %s: %w", o.Out, err)
	}
	work, err := os.MkdirTemp(filepath.Dir(o.Out), ".release-*")
	if err != nil {
		return fmt.Errorf("make a folder to work in: %w", err)
	}
	defer os.RemoveAll(work)
	r := &release{Options: o, work: work, dir: filepath.Join(work, "dist"), digests: map[string]v1.Hash{}, archives: map[string]string{}}
	for _, step := range []func(context.Context) error{r.images, r.plugin, r.install, r.chart, r.clients, r.checksums} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(o.Out); err != nil {
		return fmt.Errorf("remove the earlier release: %w", err)
	}
	if err := os.Rename(r.dir, o.Out); err != nil {
		return fmt.Errorf("move the release into place: %w", err)
	}
	o.Say("release %s is in %s", o.Version, o.Out)
	return nil
}

// replaceable keeps the release from taking the place of something else.
func replaceable(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look into %s: %w", dir, err)
	}
	if _, err := os.Stat(filepath.Join(dir, checksumsFile)); err != nil {
		return fmt.Errorf("%s isn't empty and holds no release (no %s): name another folder, or remove it yourself", dir, checksumsFile)
	}
	return nil
}

// write makes a file of the release, and the folders above it.
func (r *release) write(name string, content []byte) error {
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// programs lists the checkout's programs that images are made of: all but kubectl's plugins.
func (r *release) programs() ([]string, error) {
	folders, err := os.ReadDir(filepath.Join(r.Source, "cmd"))
	if err != nil {
		return nil, fmt.Errorf("list the programs: %w", err)
	}
	var names []string
	for _, folder := range folders {
		if folder.IsDir() && !strings.HasPrefix(folder.Name(), "kubectl-") {
			names = append(names, folder.Name())
		}
	}
	return append(names, storeProgram), nil
}

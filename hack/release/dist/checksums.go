package dist

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"toolcall.dev/operator/hack/release/manifests"
)

const checksumsFile = "checksums.txt"

// checksums lists every file of the release, as sha256sum -c reads it.
func (r *release) checksums(context.Context) error {
	files, err := manifests.Files(r.dir)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("sum up the release: %w", err)
		}
		name, err := filepath.Rel(r.dir, path)
		if err != nil {
			return fmt.Errorf("sum up the release: %w", err)
		}
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(content), filepath.ToSlash(name))
	}
	return r.write(checksumsFile, []byte(list.String()))
}

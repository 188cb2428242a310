package dist

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// clients packs the client libraries.
func (r *release) clients(ctx context.Context) error {
	for _, language := range r.Clients {
		r.Say("packing the client for %s", language)
		pack := exec.CommandContext(ctx, filepath.Join(r.Source, "clients", language, "pack.sh"), strings.TrimPrefix(r.Version, "v"), filepath.Join(r.dir, "clients"))
		var said bytes.Buffer
		pack.Stdout, pack.Stderr = &said, &said
		if err := pack.Run(); err != nil {
			return fmt.Errorf("pack the client for %s: %w: %s", language, err, bytes.TrimSpace(said.Bytes()))
		}
	}
	return nil
}

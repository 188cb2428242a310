package dist

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// pluginProgram is kubectl's plugin.
const pluginProgram = "kubectl-toolcall"

// plugin makes an archive of kubectl's plugin for each platform, in plugin/.
func (r *release) plugin(ctx context.Context) error {
	// Krew's index takes no archive without it.
	licence, err := os.ReadFile(filepath.Join(r.Source, "LICENSE"))
	if err != nil {
		return fmt.Errorf("read the licence: %w", err)
	}
	for _, platform := range r.PluginPlatforms {
		system, arch, _ := strings.Cut(platform, "/")
		t := target{pluginProgram, system, arch}
		path, _, err := r.buildWithSBOM(ctx, t)
		if err != nil {
			return err
		}
		program, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read %s: %w", t, err)
		}
		name := pluginProgram
		if system == "windows" {
			name += ".exe"
		}
		archive, err := tarGz([]entry{{name: name, mode: 0o755, content: program}, {name: "LICENSE", mode: 0o644, content: licence}})
		if err != nil {
			return fmt.Errorf("pack %s: %w", t, err)
		}
		if err := r.write("plugin/"+pluginProgram+"_"+r.Version+"_"+system+"_"+arch+".tar.gz", archive); err != nil {
			return err
		}
		r.archives[system+"_"+arch] = fmt.Sprintf("%x", sha256.Sum256(archive))
	}
	return r.krew()
}

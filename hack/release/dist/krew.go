package dist

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// blank is a place in krew's manifest that a release fills.
var blank = regexp.MustCompile(`"[^"]*(@[A-Z0-9_]+@)[^"]*"`)

// krew fills in the manifest of kubectl's plugin manager, when it is known where the archives will be.
func (r *release) krew() error {
	if r.DownloadURL == "" || len(r.archives) == 0 {
		return nil
	}
	template, err := os.ReadFile(filepath.Join(r.Source, "config", "krew", "toolcall.yaml"))
	if err != nil {
		return fmt.Errorf("read krew's manifest: %w", err)
	}
	values := []string{"@URL@", r.DownloadURL, "@VERSION@", r.Version}
	for platform, sum := range r.archives {
		values = append(values, "@SHA256_"+strings.ToUpper(platform)+"@", sum)
	}
	filled := strings.NewReplacer(values...).Replace(string(template))
	var left []string
	for _, match := range blank.FindAllStringSubmatch(filled, -1) {
		left = append(left, match[1])
	}
	if len(left) > 0 {
		return fmt.Errorf("krew's manifest needs %v: build the plugin for those platforms too, or leave the download address out", slices.Compact(left))
	}
	return r.write("plugin/toolcall.yaml", []byte(filled))
}

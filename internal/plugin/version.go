package plugin

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
)

// release is set when a release is built: -ldflags "-X toolcall.dev/operator/internal/plugin.release=v1.2.3".
var release string

// version is the release, else the commit that the program was built from.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	commit, dirty := "unknown", ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			commit = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			dirty = "+changes"
		}
	}
	return "dev-" + commit[:min(len(commit), 12)] + dirty
}

func newVersion(s *session) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the plugin's version",
		Example: "  kubectl toolcall version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(s.Out, "kubectl-toolcall %s (%s/%s, %s, API %s)\n", version(), runtime.GOOS, runtime.GOARCH, runtime.Version(), v1alpha1.GroupVersion)
			return err
		},
	}
}

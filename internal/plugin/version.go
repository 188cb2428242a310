package plugin

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/version"
)

func newVersion(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of the plugin",
		Example: "  kubectl toolcall version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(c.Out, "kubectl-toolcall %s (%s/%s, %s, API %s)\n", version.String(), runtime.GOOS, runtime.GOARCH, runtime.Version(), v1alpha1.GroupVersion)
			return err
		},
	}
}

package plugin

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

const cancelLong = `Request the cancellation of calls. The command gets SIGTERM, and SIGKILL after 5 seconds. Finished calls ignore the
request. Use wait to wait until the calls have finished.`

const cancelExample = `  kubectl toolcall cancel nightly
  kubectl toolcall cancel first second`

func newCancel(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "cancel NAME...",
		Short:             "Cancel calls",
		Long:              cancelLong,
		Example:           cancelExample,
		Args:              requireCalls,
		ValidArgsFunction: c.completeCalls(-1),
		RunE: func(command *cobra.Command, args []string) error {
			cluster, err := c.connect()
			if err != nil {
				return err
			}
			var failed []error
			for _, name := range args {
				if err := cluster.follow().Cancel(command.Context(), cluster.key(name)); err != nil {
					failed = append(failed, cluster.notFoundError("call "+name, err))
					continue
				}
				fmt.Fprintf(c.Out, "%s: cancellation requested\n", name)
			}
			return errors.Join(failed...)
		},
	}
}

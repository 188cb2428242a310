package plugin

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

const cancelExample = `  kubectl toolcall cancel nightly
  kubectl toolcall cancel first second`

func newCancel(s *session) *cobra.Command {
	return &cobra.Command{
		Use:               "cancel NAME...",
		Short:             "Ask calls to stop",
		Long:              "Ask calls to stop: the command gets SIGTERM, and SIGKILL 5 s later. A finished call ignores it. wait tells when they have ended.",
		Example:           cancelExample,
		Args:              someCalls,
		ValidArgsFunction: s.completeCalls(-1),
		RunE: func(command *cobra.Command, args []string) error {
			c, err := s.connect()
			if err != nil {
				return err
			}
			var failed []error
			for _, name := range args {
				if err := c.follow().Cancel(command.Context(), c.key(name)); err != nil {
					failed = append(failed, c.missing("call "+name, err))
					continue
				}
				fmt.Fprintf(s.Out, "%s asked to stop\n", name)
			}
			return errors.Join(failed...)
		},
	}
}

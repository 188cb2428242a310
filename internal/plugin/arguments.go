package plugin

import (
	"errors"

	"github.com/spf13/cobra"
)

// requireCall accepts the name of one call.
func requireCall(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("specify the name of one call: \"kubectl toolcall get\" lists the calls")
	}
	return nil
}

// requireCalls accepts the names of one or more calls.
func requireCalls(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("specify the names of the calls: \"kubectl toolcall get\" lists the calls")
	}
	for _, name := range args {
		if name == "" {
			return errors.New("the name of a call must not be empty")
		}
	}
	return nil
}

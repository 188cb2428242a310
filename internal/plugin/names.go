package plugin

import (
	"errors"

	"github.com/spf13/cobra"
)

// oneCall wants a call's name as the only argument.
func oneCall(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("name one call: \"kubectl toolcall get\" lists them")
	}
	return nil
}

// someCalls wants the names of calls.
func someCalls(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("name the calls: \"kubectl toolcall get\" lists them")
	}
	for _, name := range args {
		if name == "" {
			return errors.New("the name of a call is empty")
		}
	}
	return nil
}

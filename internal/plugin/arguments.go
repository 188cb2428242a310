package plugin

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"
)

// requireCall accepts the name of one call.
func requireCall(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("specify the name of one call: \"kubectl toolcall get\" lists the calls")
	}
	return nil
}

// requireEnvironments accepts the names of one or more environments.
func requireEnvironments(_ *cobra.Command, args []string) error {
	if len(args) == 0 || slices.Contains(args, "") {
		return errors.New("specify the names of the environments: \"kubectl toolcall env list\" lists the environments")
	}
	return nil
}

// requireSession accepts the name of one session.
func requireSession(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("specify the name of one session: \"kubectl toolcall session list\" lists the sessions")
	}
	return nil
}

// requireSessions accepts the names of one or more sessions.
func requireSessions(_ *cobra.Command, args []string) error {
	if len(args) == 0 || slices.Contains(args, "") {
		return errors.New("specify the names of the sessions: \"kubectl toolcall session list\" lists the sessions")
	}
	return nil
}

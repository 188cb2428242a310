// Command kubectl-toolcall is a plugin of kubectl: put it into PATH and call it as "kubectl toolcall".
//
// Each subcommand lives in a file of its own and is listed in newCommand. Results go to standard output, and
// what a person should know to standard error; the exit code is 0 when the result can be used.
package main

import (
	"os"

	"github.com/spf13/cobra"
)

func main() {
	if newCommand().Execute() != nil {
		os.Exit(1)
	}
}

// newCommand lists all subcommands.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-toolcall",
		Short:         "Work with tool calls, their environments and policies",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl toolcall"},
		SilenceUsage:  true,
		SilenceErrors: false,
	}
	root.SetErrPrefix("error:")
	root.AddCommand(newConvertCommand())
	return root
}

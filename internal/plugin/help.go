package plugin

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// plainExitCodes is part of the help of commands whose help says nothing else about their exit code.
const plainExitCodes = "The exit code is 0 if the command did what it was asked to do, and 1 otherwise."

// completeHelp adds to all commands what they have in common: documented exit codes, and no proposals of local files for flags
// and arguments that take something else.
func completeHelp(command *cobra.Command) {
	for _, child := range command.Commands() {
		completeHelp(child)
	}
	if command.HasSubCommands() {
		return
	}
	if !strings.Contains(strings.ToLower(command.Long), "exit code") {
		command.Long = strings.TrimSpace(command.Long + "\n\n" + plainExitCodes)
	}
	if command.ValidArgsFunction == nil {
		command.ValidArgsFunction = cobra.NoFileCompletions
	}
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		_, isFile := flag.Annotations[cobra.BashCompFilenameExt]
		if _, isComplete := command.GetFlagCompletionFunc(flag.Name); isComplete || isFile || flag.Value.Type() == "bool" {
			return
		}
		must(command.RegisterFlagCompletionFunc(flag.Name, cobra.NoFileCompletions))
	})
}

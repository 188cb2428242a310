// Package calls has the commands about single calls, from run to delete, and what commands about sessions need to run calls in them.
package calls

import (
	"github.com/spf13/cobra"

	"toolcall.dev/operator/internal/plugin/cli"
)

// Commands are the commands about single calls.
func Commands(c *cli.CLI) []*cobra.Command {
	return []*cobra.Command{
		newRun(c), newRerun(c), newLogs(c), newAttach(c), newWait(c), newCancel(c), newDelete(c), newGet(c), newDescribe(c), newTop(c),
	}
}

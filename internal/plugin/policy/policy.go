// Package policy has the commands that try a policy before it is applied: test judges its examples, diff compares two policies by their
// examples, and replay judges the calls of a cluster again.
//
// Input are policies in files, which internal/decide judges as the operator does. Only replay, and diff for a policy that is named, read
// a cluster; nothing is written to it.
package policy

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/internal/plugin/cli"
)

// Commands are the commands about policies. replay is there by itself too, with its own examples, and listed once.
func Commands(c *cli.CLI) []*cobra.Command {
	alone := newReplay(c)
	alone.Hidden, alone.Example = true, strings.ReplaceAll(alone.Example, "policy replay", "replay")
	return []*cobra.Command{cli.Group(&cobra.Command{
		Use:     "policy",
		Aliases: []string{"policies"},
		Short:   "Test, compare and replay policies",
		Example: "  kubectl toolcall policy test policy.yaml\n  kubectl toolcall policy diff tools policy.yaml\n  kubectl toolcall policy replay --policy policy.yaml",
	}, newTest(c), newDiff(c), newReplay(c)), alone}
}

// Extensions are those of files with policies, for completion.
var Extensions = []string{"yaml", "yml", "json"}

func completeFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return Extensions, cobra.ShellCompDirectiveFilterFileExt
}

// requireFiles accepts a number of files, of which one can be standard input.
func requireFiles(least, most int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return errors.New("specify " + what)
		}
		if first := slices.Index(args, "-"); first >= 0 && slices.Contains(args[first+1:], "-") {
			return errors.New("standard input (-) can be read once: name a file in place of the others")
		}
		return nil
	}
}

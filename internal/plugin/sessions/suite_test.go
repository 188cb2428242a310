package sessions

import (
	"os"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/environments"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestMain(m *testing.M) { os.Exit(plugintest.Main(m, withOthers)) }

// withOthers are the tested commands, and those that run or explain calls in sessions.
func withOthers(c *cli.CLI) []*cobra.Command {
	return slices.Concat(Commands(c), calls.Commands(c), environments.Commands(c))
}

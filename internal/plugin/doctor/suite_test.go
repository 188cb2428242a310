package doctor

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

func TestMain(m *testing.M) { os.Exit(plugintest.Main(m, withOthers, "doctor")) }

// withOthers are the tested commands, and those by which tests make and suspend what doctor looks at.
func withOthers(c *cli.CLI) []*cobra.Command {
	return slices.Concat(Commands(c), calls.Commands(c), environments.Commands(c))
}

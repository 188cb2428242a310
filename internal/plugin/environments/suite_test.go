package environments

import (
	"os"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestMain(m *testing.M) { os.Exit(plugintest.Main(m, withCalls)) }

// withCalls are the tested commands, and those that make the calls that tests need.
func withCalls(c *cli.CLI) []*cobra.Command { return slices.Concat(Commands(c), calls.Commands(c)) }

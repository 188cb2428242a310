package plugin

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"toolcall.dev/operator/internal/plugin/terminal"
)

// cli holds what all commands share: the standard streams and kubectl's flags.
type cli struct {
	// Out and ErrOut make control characters visible where they lead to a terminal.
	genericiooptions.IOStreams
	// unfiltered are the streams as they were given.
	unfiltered genericiooptions.IOStreams
	filters    []*terminal.Writer
	flags      *genericclioptions.ConfigFlags
}

func newCLI(streams genericiooptions.IOStreams) *cli {
	c := &cli{IOStreams: streams, unfiltered: streams, flags: genericclioptions.NewConfigFlags(true)}
	if terminal.Is(streams.Out) {
		filter := terminal.NewWriter(streams.Out)
		c.Out, c.filters = filter, append(c.filters, filter)
	}
	if terminal.Is(streams.ErrOut) {
		filter := terminal.NewWriter(streams.ErrOut)
		c.ErrOut, c.filters = filter, append(c.filters, filter)
	}
	return c
}

// addRawFlag gives a command the flag that turns the filter for terminals off.
func (c *cli) addRawFlag(command *cobra.Command) {
	raw := command.Flags().Bool("raw", false, "print control characters unchanged on a terminal too: the output can then control the terminal")
	command.PreRun = func(*cobra.Command, []string) {
		if *raw {
			c.IOStreams = c.unfiltered
		}
	}
}

// flush passes on what the filters hold back. A failed write shows at the next one, or there is none.
func (c *cli) flush() {
	for _, filter := range c.filters {
		_ = filter.Flush()
	}
}

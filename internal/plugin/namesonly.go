package plugin

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/internal/plugin/terminal"
)

// Resources as -o name prints them.
const (
	callResource        = "toolcall.toolcall.dev"
	environmentResource = "executionenvironment.toolcall.dev"
	sessionResource     = "toolsession.toolcall.dev"
)

// namesOnly is the flag -o of commands that change objects: they print what they did, or the names alone.
type namesOnly struct{ format string }

func (n *namesOnly) add(command *cobra.Command) {
	command.Flags().StringVarP(&n.format, "output", "o", "", "output format: name prints only the names of the objects")
	must(command.RegisterFlagCompletionFunc("output", completeFrom("name")))
}

func (n *namesOnly) validate() error {
	if n.format != "" && n.format != "name" {
		return fmt.Errorf("--output %q: must be name; to see an object, use get or describe", n.format)
	}
	return nil
}

func (n *namesOnly) isName() bool { return n.format == "name" }

// report says what was done to an object.
func (n *namesOnly) report(out io.Writer, resource, name, done string) {
	if n.isName() {
		fmt.Fprintln(out, terminal.SafeLine(resource+"/"+name))
		return
	}
	fmt.Fprintf(out, "%s: %s\n", terminal.SafeLine(name), done)
}

package plugin

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/plugin/terminal"
)

// changeFormats are the flag -o and its companions of commands that change objects: they print what they did, or the objects as they
// are then.
type changeFormats struct {
	outputFormats
	printer printers.ResourcePrinter
}

func newChangeFormats() *changeFormats { return &changeFormats{outputFormats: newOutputFormats()} }

// validate reads the flags, before anything is changed.
func (f *changeFormats) validate() (err error) {
	if f.isObject() {
		f.printer, err = f.ToPrinter()
	}
	return err
}

// isWhole reports whether more than the names of objects is printed.
func (f *changeFormats) isWhole() bool { return f.isObject() && f.format() != "name" }

// report says what was done to an object, or prints it.
func (f *changeFormats) report(out io.Writer, object client.Object, done string) error {
	if f.printer != nil {
		return f.printer.PrintObj(object, out)
	}
	_, err := fmt.Fprintf(out, "%s: %s\n", terminal.SafeLine(object.GetName()), done)
	return err
}

// namesOnly is the flag -o of delete, whose calls are gone then: it prints what it did, or the names alone.
type namesOnly struct{ format string }

func (n *namesOnly) add(command *cobra.Command) {
	command.Flags().StringVarP(&n.format, "output", "o", "", "output format: name prints only the names of the objects")
	must(command.RegisterFlagCompletionFunc("output", completeFrom("name")))
}

func (n *namesOnly) validate() error {
	if n.format != "" && n.format != "name" {
		return fmt.Errorf("--output %q: must be name; to see an object, use get or describe before", n.format)
	}
	return nil
}

// report says that a call was deleted.
func (n *namesOnly) report(out io.Writer, name string) {
	if n.format == "name" {
		fmt.Fprintln(out, terminal.SafeLine("toolcall.toolcall.dev/"+name))
		return
	}
	fmt.Fprintf(out, "%s: deleted\n", terminal.SafeLine(name))
}

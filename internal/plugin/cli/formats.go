package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/plugin/terminal"
)

// ReportVersion is the version of what commands print with -o that is no object of the cluster.
const ReportVersion = "cli.toolcall.dev/v1alpha1"

// Printable is what printers print.
type Printable = runtime.Object

// ReportObject makes an object that can be printed from a command's own findings.
func ReportObject(kind string, findings any) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(findings)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if err := json.Unmarshal(raw, &object.Object); err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	object.SetAPIVersion(ReportVersion)
	object.SetKind(kind)
	return object, nil
}

// Formats are the flags -o and its companions of a command.
type Formats struct {
	*genericclioptions.PrintFlags
	// own are formats that the command prints itself, such as wide.
	own []string
}

func NewFormats(own ...string) Formats {
	return Formats{PrintFlags: genericclioptions.NewPrintFlags("").WithTypeSetter(Scheme()), own: own}
}

// Add adds the flags, with a completion of the formats.
func (f *Formats) Add(command *cobra.Command) { AddPrintFlags(command, f.PrintFlags, f.own...) }

// AddPrintFlags adds the flags of a printer, with a completion of its formats and the command's own.
func AddPrintFlags(command *cobra.Command, flags *genericclioptions.PrintFlags, own ...string) {
	flags.AddFlags(command)
	formats := slices.Concat(own, flags.AllowedFormats())
	command.Flags().Lookup("output").Usage = "output format, one of: " + strings.Join(formats, ", ")
	Must(command.RegisterFlagCompletionFunc("output", CompleteFrom(formats...)))
}

// Format is the format that the user asked for, empty for none.
func (f *Formats) Format() string { return *f.OutputFormat }

// IsObject reports whether the user asked for objects, and not for a table that the command prints itself.
func (f *Formats) IsObject() bool {
	return f.Format() != "" && !slices.Contains(f.own, f.Format())
}

// Print prints objects one after the other where the format is name, and otherwise the list.
func (f *Formats) Print(c *CLI, list Printable, each []Printable) error {
	printer, err := f.ToPrinter()
	if err != nil {
		return err
	}
	if f.Format() != "name" {
		return printer.PrintObj(list, c.Out)
	}
	for _, object := range each {
		if err := printer.PrintObj(object, c.Out); err != nil {
			return err
		}
	}
	return nil
}

// ChangeFormats are the flag -o and its companions of commands that change objects: they print what they did, or the objects as they
// are then.
type ChangeFormats struct {
	Formats
	printer printers.ResourcePrinter
}

func NewChangeFormats() *ChangeFormats { return &ChangeFormats{Formats: NewFormats()} }

// Validate reads the flags, before anything is changed.
func (f *ChangeFormats) Validate() (err error) {
	if f.IsObject() {
		f.printer, err = f.ToPrinter()
	}
	return err
}

// IsWhole reports whether more than the names of objects is printed.
func (f *ChangeFormats) IsWhole() bool { return f.IsObject() && f.Format() != "name" }

// Report says what was done to an object, or prints it.
func (f *ChangeFormats) Report(out io.Writer, object client.Object, done string) error {
	if f.printer != nil {
		return f.printer.PrintObj(object, out)
	}
	_, err := fmt.Fprintf(out, "%s: %s\n", terminal.SafeLine(object.GetName()), done)
	return err
}

// NamesOnly is the flag -o of delete, whose calls are gone then: it prints what it did, or the names alone.
type NamesOnly struct{ format string }

func (n *NamesOnly) Add(command *cobra.Command) {
	command.Flags().StringVarP(&n.format, "output", "o", "", "output format: name prints only the names of the objects")
	Must(command.RegisterFlagCompletionFunc("output", CompleteFrom("name")))
}

func (n *NamesOnly) Validate() error {
	if n.format != "" && n.format != "name" {
		return fmt.Errorf("--output %q: must be name; to see an object, use get or describe before", n.format)
	}
	return nil
}

// Report says that a call was deleted.
func (n *NamesOnly) Report(out io.Writer, name string) {
	if n.format == "name" {
		fmt.Fprintln(out, terminal.SafeLine("toolcall.toolcall.dev/"+name))
		return
	}
	fmt.Fprintf(out, "%s: deleted\n", terminal.SafeLine(name))
}

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"toolcall.dev/operator/internal/plugin/terminal"
)

// ReportVersion is the version of what commands print with -o that is no object of the cluster.
const ReportVersion = "cli.toolcall.dev/v1alpha1"

// Formats are the flags -o and its companions of a command.
type Formats struct {
	*genericclioptions.PrintFlags
	// own are formats that the command prints itself, such as wide.
	own     []string
	printer printers.ResourcePrinter
}

func NewFormats(own ...string) *Formats {
	return &Formats{PrintFlags: genericclioptions.NewPrintFlags("").WithTypeSetter(Scheme()), own: own}
}

// Add adds the flags to a command, with a completion of the formats. A format that there isn't is refused before anything is changed.
func (f *Formats) Add(command *cobra.Command) *cobra.Command {
	f.AddFlags(command)
	CheckBefore(command, func([]string) error { return f.choosePrinter() })
	formats := slices.Concat(f.own, f.AllowedFormats())
	command.Flags().Lookup("output").Usage = "output format, one of: " + strings.Join(formats, ", ")
	Must(command.RegisterFlagCompletionFunc("output", CompleteFrom(formats...)))
	return command
}

// Format is the format that the user asked for, empty for none.
func (f *Formats) Format() string { return *f.OutputFormat }

// IsObject reports whether the user asked for objects, and not for a table that the command prints itself.
func (f *Formats) IsObject() bool {
	return f.Format() != "" && !slices.Contains(f.own, f.Format())
}

// IsWhole reports whether more than the names of objects is printed.
func (f *Formats) IsWhole() bool { return f.IsObject() && f.Format() != "name" }

func (f *Formats) choosePrinter() (err error) {
	if f.IsObject() && f.printer == nil {
		f.printer, err = f.ToPrinter()
	}
	return err
}

// Print prints an object, or a list: as one object, or where the format is name, the name of each of its objects. The printers say little
// of what can't be written, or nothing: they write to memory.
func (f *Formats) Print(out io.Writer, object runtime.Object) error {
	if err := f.choosePrinter(); err != nil {
		return err
	}
	text := &bytes.Buffer{}
	if err := f.format(text, object); err != nil {
		return err
	}
	if _, err := out.Write(text.Bytes()); err != nil {
		if errors.Is(err, syscall.EPIPE) {
			return &ExitError{Code: CodePipe}
		}
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

func (f *Formats) format(out io.Writer, object runtime.Object) error {
	if !meta.IsListType(object) {
		return f.printer.PrintObj(object, out)
	}
	// The objects of a list have no kind, unless the API server makes tables of them.
	err := meta.EachListItem(object, func(item runtime.Object) error {
		kind, err := apiutil.GVKForObject(item, Scheme())
		item.GetObjectKind().SetGroupVersionKind(kind)
		if err != nil || f.IsWhole() {
			return err
		}
		return f.printer.PrintObj(item, out)
	})
	if err != nil || !f.IsWhole() {
		return err
	}
	return f.printer.PrintObj(object, out)
}

// PrintReport prints a command's own findings as an object.
func (f *Formats) PrintReport(out io.Writer, kind, name string, findings any) error {
	raw, err := json.Marshal(findings)
	if err != nil {
		return fmt.Errorf("encode %s: %w", kind, err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if err := json.Unmarshal(raw, &object.Object); err != nil {
		return fmt.Errorf("encode %s: %w", kind, err)
	}
	object.SetAPIVersion(ReportVersion)
	object.SetKind(kind)
	object.SetName(name)
	return f.Print(out, object)
}

// Report says what was done to an object, or prints it as it is then.
func (f *Formats) Report(out io.Writer, object client.Object, done string) error {
	if f.IsObject() {
		return f.Print(out, object)
	}
	_, err := fmt.Fprintf(out, "%s: %s\n", terminal.SafeLine(object.GetName()), done)
	return err
}

// DryRun are the flags --dry-run and -o of a command that creates an object.
type DryRun struct {
	*Formats
	// Mode is none, client or server.
	Mode string
}

// Add adds the flags, and refuses them beside --detach. kind is what the command creates.
func (d *DryRun) Add(command *cobra.Command, kind string, detach *bool) {
	AddChoice(command, &d.Mode, "dry-run", "none", `"client" prints the `+kind+`, "server" also lets the API server validate it; neither creates it`, "client", "server", "none")
	command.Flags().Lookup("dry-run").NoOptDefVal = "client"
	CheckBefore(command, func([]string) error {
		if *detach && d.Mode != "none" {
			return fmt.Errorf("--detach and --dry-run can't be used together: a dry run creates no %s", kind)
		}
		return nil
	})
	d.Formats.Add(command)
}

// PrintInstead prints the object that isn't created.
func (d *DryRun) PrintInstead(out io.Writer, object runtime.Object) error {
	if d.Format() == "" {
		*d.OutputFormat = "yaml"
	}
	return d.Print(out, object)
}

package plugin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/docurl"
)

// reportVersion is the version of what commands print with -o that is no object of the cluster.
const reportVersion = "cli.toolcall.dev/v1alpha1"

// printable is what printers print.
type printable = runtime.Object

// reportObject makes an object that can be printed from a command's own findings.
func reportObject(kind string, findings any) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(findings)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if err := json.Unmarshal(raw, &object.Object); err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	object.SetAPIVersion(reportVersion)
	object.SetKind(kind)
	return object, nil
}

// outputFormats are the flags -o and its companions of a command.
type outputFormats struct {
	*genericclioptions.PrintFlags
	// own are formats that the command prints itself, such as wide.
	own []string
}

func newOutputFormats(own ...string) outputFormats {
	return outputFormats{PrintFlags: genericclioptions.NewPrintFlags("").WithTypeSetter(scheme()), own: own}
}

// add adds the flags, with a completion of the formats.
func (f *outputFormats) add(command *cobra.Command) { addPrintFlags(command, f.PrintFlags, f.own...) }

// addPrintFlags adds the flags of a printer, with a completion of its formats and the command's own.
func addPrintFlags(command *cobra.Command, flags *genericclioptions.PrintFlags, own ...string) {
	flags.AddFlags(command)
	formats := slices.Concat(own, flags.AllowedFormats())
	command.Flags().Lookup("output").Usage = "output format, one of: " + strings.Join(formats, ", ")
	must(command.RegisterFlagCompletionFunc("output", completeFrom(formats...)))
}

// format is the format that the user asked for, empty for none.
func (f *outputFormats) format() string { return *f.OutputFormat }

// isObject reports whether the user asked for objects, and not for a table that the command prints itself.
func (f *outputFormats) isObject() bool {
	return f.format() != "" && !slices.Contains(f.own, f.format())
}

// print prints objects one after the other where the format is name, and otherwise the list.
func (f *outputFormats) print(c *cli, list printable, each []printable) error {
	printer, err := f.ToPrinter()
	if err != nil {
		return err
	}
	if f.format() != "name" {
		return printer.PrintObj(list, c.Out)
	}
	for _, object := range each {
		if err := printer.PrintObj(object, c.Out); err != nil {
			return err
		}
	}
	return nil
}

// aboutFailure is the address of what the documentation says about the reason for which a call failed or was denied, empty for any
// other call.
func aboutFailure(s *v1alpha1.ToolCallStatus) string {
	if s.Phase != v1alpha1.PhaseFailed && s.Phase != v1alpha1.PhaseDenied {
		return ""
	}
	return docurl.Reason(s.Reason)
}

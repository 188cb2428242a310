package calls

import (
	"context"
	"fmt"
	"maps"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/plugin/cli"
)

// annotationRerunOf on a call names the call that it runs again.
const annotationRerunOf = "cli.toolcall.dev/rerun-of"

const rerunLong = `Run a finished call again, as a new call with the same specification and labels, and exit with its exit code.

The new call has a name of its own, which begins with that of the old one unless --name sets it. A message on standard error
says both. describe shows of which call a call is the rerun.

The call runs as you: your rights and the policies of today decide, not those of the requester and the day of the old call. A
call of a session runs in the same session again, with the files that are there now.

` + liveHelp + `

` + cli.ExitCodesHelp

const rerunExample = `  kubectl toolcall rerun nightly
  kubectl toolcall rerun nightly --name nightly-2 --detach
  kubectl toolcall rerun nightly --dry-run -o yaml`

func newRerun(c *cli.CLI) *cobra.Command {
	o := NewRunOptions(c)
	command := &cobra.Command{
		Use:               "rerun NAME",
		Short:             "Run a finished call again under a new name",
		Long:              rerunLong,
		Example:           rerunExample,
		Args:              cli.RequireCall,
		Annotations:       map[string]string{cli.AnnotationCode: "yes"},
		ValidArgsFunction: c.CompleteArguments(1, cli.ListCalls),
		RunE:              c.Connected(o.rerun),
	}
	o.Call.addName(command, "name of the new call (default: generated from the old name)")
	o.AddFlags(command)
	return command
}

func (o *RunOptions) rerun(ctx context.Context, c *cli.Cluster, args []string) error {
	name := args[0]
	origin, err := c.GetCall(ctx, name)
	if err != nil {
		return err
	}
	if !follow.Finished(origin) {
		return fmt.Errorf("call %s has not finished: to follow it, run kubectl toolcall attach %s; to run it again, wait for its end or cancel it", name, name)
	}
	o.origin = name
	return o.submit(ctx, c, again(origin, o.Call.Template.Name))
}

// again is a call that does what another one did. What admission or the operator set of the other one is left out.
func again(origin *v1alpha1.ToolCall, name string) *v1alpha1.ToolCall {
	call := &v1alpha1.ToolCall{}
	call.Namespace, call.Name, call.Labels = origin.Namespace, name, maps.Clone(origin.Labels)
	if name == "" {
		call.GenerateName = origin.Name + "-"
	}
	call.Annotations = map[string]string{annotationRerunOf: origin.Name}
	origin.Spec.DeepCopyInto(&call.Spec)
	call.Spec.RequestedBy, call.Spec.Cancel = nil, false
	return call
}

package environments

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
)

const suspendLong = `Suspend environments: no new call starts in them until they are resumed. New calls wait in phase Pending. Running calls
continue; use cancel to stop them. The command sets spec.suspend, which needs permission to patch
executionenvironments: the ClusterRole toolcall-admin grants it. -o prints the environments.`

const resumeLong = `Resume suspended environments: the calls that wait in them start. The command clears spec.suspend. -o prints the
environments.`

// newSetSuspend completes a command that patches all environments, also after one that fails or can't be printed: in an incident, the
// others must stop too.
func newSetSuspend(c *cli.CLI, suspend bool, done string, command *cobra.Command) *cobra.Command {
	formats := cli.NewFormats()
	command.Example = "  kubectl toolcall env " + command.Name() + " tools"
	command.Args = cli.RequireEnvironments
	command.ValidArgsFunction = c.CompleteArguments(-1, cli.ListEnvironments)
	command.RunE = c.Connected(func(ctx context.Context, cluster *cli.Cluster, names []string) error {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, suspend))
		var failed []error
		for _, name := range names {
			env := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}}
			if err := cluster.Client.Patch(ctx, env, patch); err != nil {
				failed = append(failed, cluster.Explain("patch", "executionenvironments", "environment "+name, err))
				continue
			}
			failed = append(failed, formats.Report(c.Out, env, done))
		}
		return errors.Join(failed...)
	})
	return formats.Add(command)
}

package environments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

func newEnvSuspend(c *cli.CLI) *cobra.Command {
	formats := cli.NewChangeFormats()
	command := &cobra.Command{
		Use:               "suspend NAME...",
		Short:             "Stop new calls in environments from starting",
		Long:              suspendLong,
		Example:           "  kubectl toolcall env suspend tools",
		Args:              cli.RequireEnvironments,
		ValidArgsFunction: c.CompleteArguments(-1, cli.ListEnvironments),
		RunE: func(command *cobra.Command, args []string) error {
			return setSuspend(command.Context(), c, args, true, formats)
		},
	}
	formats.Add(command)
	return command
}

func newEnvResume(c *cli.CLI) *cobra.Command {
	formats := cli.NewChangeFormats()
	command := &cobra.Command{
		Use:               "resume NAME...",
		Short:             "Let calls in suspended environments start again",
		Long:              resumeLong,
		Example:           "  kubectl toolcall env resume tools",
		Args:              cli.RequireEnvironments,
		ValidArgsFunction: c.CompleteArguments(-1, cli.ListEnvironments),
		RunE: func(command *cobra.Command, args []string) error {
			return setSuspend(command.Context(), c, args, false, formats)
		},
	}
	formats.Add(command)
	return command
}

// setSuspend patches all environments, also after one that fails or can't be printed: in an incident, the others must stop too.
func setSuspend(ctx context.Context, c *cli.CLI, names []string, suspend bool, formats *cli.ChangeFormats) error {
	if err := formats.Validate(); err != nil {
		return err
	}
	cluster, err := c.Connect()
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"suspend": suspend}})
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	done := map[bool]string{true: "suspended", false: "resumed"}[suspend]
	var failed []error
	for _, name := range names {
		env := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}}
		if err := cluster.Client.Patch(ctx, env, client.RawPatch(types.MergePatchType, patch)); err != nil {
			failed = append(failed, patchEnvironmentError(cluster, name, err))
			continue
		}
		if err := formats.Report(c.Out, env, done); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func patchEnvironmentError(c *cli.Cluster, name string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("patch environment %s: you need permission to patch executionenvironments in this namespace: the ClusterRole toolcall-admin grants it: %w", name, err)
	}
	return c.ReadError("environment "+name, err)
}

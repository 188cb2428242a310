package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
)

const checkLong = `Check whether a call would be allowed, without running it. The output also shows the policy, the environment, the
directory, the command line, the time limit, which walls would hold the call's processes, and the variables. A line
"Warning" says what of the policy is weaker than it looks. The flags are those of run.

The API server validates and admits the call in a dry run. Then the command applies the operator's rules to the
environments, skills and policies that you have permission to read. With --as, call and rights are the other user's;
the rest is read with your own rights. Variables appear with names and sources; values
appear only if the call itself sets them. The command can't check what only the pod knows: whether the program and the
directory exist, and whether the kernel of its node can hold the walls.

The exit code is 0 if the call would be allowed, 126 if it would be denied, and 125 if it would fail before it starts
or if the result is unknown, for example because you lack a permission.`

const checkExample = `  kubectl toolcall check -- git push
  kubectl toolcall check --environment repo --shell 'make test | tail'
  kubectl toolcall check --code python -f script.py
  kubectl toolcall check -o jsonpath='{.allowed}' -- git push
  kubectl toolcall check --as system:serviceaccount:agents:agent -- git status`

func newCheck(c *cli) *cobra.Command {
	var flags callFlags
	formats := newOutputFormats()
	command := &cobra.Command{
		Use:         "check [flags] -- PROGRAM [ARGUMENT...]",
		Short:       "Check whether a call would be allowed",
		Long:        checkLong,
		Example:     checkExample,
		Annotations: map[string]string{annotationCode: "yes"},
		RunE: func(command *cobra.Command, args []string) error {
			call, err := flags.build(args, c.In)
			if err != nil {
				return err
			}
			cluster, err := c.connect()
			if err != nil {
				return err
			}
			call.Namespace = cluster.namespace
			return c.check(command.Context(), cluster, call, &formats)
		},
	}
	flags.add(command, c)
	formats.add(command)
	return command
}

func (c *cli) check(ctx context.Context, cluster *cluster, call *v1alpha1.ToolCall, formats *outputFormats) error {
	v, err := evaluate(ctx, cluster, call)
	if err != nil {
		return err
	}
	if err := v.show(c, formats); err != nil {
		return err
	}
	switch {
	case v.refusal != nil && v.refusal.Denied:
		return &exitError{code: codeDenied}
	case v.refusal != nil:
		return &exitError{code: codeFailed}
	case v.unknown != nil:
		return &exitError{code: codeFailed, err: fmt.Errorf("unknown whether the call would be allowed: %w", v.unknown)}
	default:
		return nil
	}
}

// errUnreadable marks objects that the user has no permission to read, so that the result is unknown.
var errUnreadable = errors.New("not readable")

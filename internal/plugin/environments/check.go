package environments

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
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

func newCheck(c *cli.CLI) *cobra.Command {
	var flags calls.Flags
	formats := cli.NewFormats()
	command := &cobra.Command{
		Use:         "check [flags] -- PROGRAM [ARGUMENT...]",
		Short:       "Check whether a call would be allowed",
		Long:        checkLong,
		Example:     checkExample,
		Annotations: map[string]string{cli.AnnotationCode: "yes"},
		RunE: func(command *cobra.Command, args []string) error {
			call, err := flags.Build(args, c.In)
			if err != nil {
				return err
			}
			cluster, err := c.Connect()
			if err != nil {
				return err
			}
			call.Namespace = cluster.Namespace
			return check(command.Context(), cluster, call, formats)
		},
	}
	flags.Add(command, c)
	formats.Add(command)
	return command
}

func check(ctx context.Context, c *cli.Cluster, call *v1alpha1.ToolCall, formats *cli.Formats) error {
	v, err := evaluate(ctx, c, call)
	if err != nil {
		return err
	}
	if formats.IsObject() {
		err = formats.PrintReport(c.Out, "Check", "check", v.report())
	} else {
		err = v.write(c.Out)
	}
	if err != nil {
		return err
	}
	switch {
	case v.refusal != nil && v.refusal.Denied:
		return &cli.ExitError{Code: cli.CodeDenied}
	case v.refusal != nil:
		return &cli.ExitError{Code: cli.CodeFailed}
	case v.unknown != nil:
		return &cli.ExitError{Code: cli.CodeFailed, Err: fmt.Errorf("unknown whether the call would be allowed: %w", v.unknown)}
	default:
		return nil
	}
}

// errUnreadable marks objects that the user has no permission to read, so that the result is unknown.
var errUnreadable = errors.New("not readable")

// checkReport is what check prints with -o.
type checkReport struct {
	// Allowed is yes, no or unknown.
	Allowed string `json:"allowed"`
	// Reason and Message say why the call would be denied or fail.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Denied says whether a call that isn't allowed would be denied, or fail before it starts.
	Denied    bool     `json:"denied"`
	Requester string   `json:"requester,omitempty"`
	Tool      string   `json:"tool,omitempty"`
	MayUse    *bool    `json:"mayUse,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`

	Environment string `json:"environment,omitempty"`
	Image       string `json:"image,omitempty"`
	Policy      string `json:"policy,omitempty"`
	// What follows is there for a call that is allowed.
	Command        string            `json:"command,omitempty"`
	TimeoutSeconds float64           `json:"timeoutSeconds,omitempty"`
	Walls          map[string]string `json:"walls,omitempty"`
	Variables      map[string]string `json:"variables,omitempty"`
}

func (v *evaluation) report() *checkReport {
	r := &checkReport{Allowed: "yes", MayUse: v.mayUse, Requester: v.call.RequesterName()}
	switch {
	case v.refusal != nil:
		r.Allowed, r.Denied, r.Reason, r.Message = "no", v.refusal.Denied, v.refusal.Reason, v.refusal.Message
	case v.unknown != nil:
		r.Allowed, r.Message = "unknown", v.unknown.Error()
	}
	if v.action != nil {
		r.Tool = v.action.Tool()
	}
	if env := v.snapshot.Effective(); env != nil {
		r.Environment, r.Image, r.Policy = env.Name, env.Spec.Image, v.policyName(env)
		for _, f := range v.warningFields() {
			r.Warnings = append(r.Warnings, f[1])
		}
	}
	if v.decision != nil {
		r.Command, r.TimeoutSeconds = v.command(), v.decision.Timeout().Seconds()
		r.Walls, r.Variables = fieldMap(v.wallFields()), fieldMap(v.variableFields())
	}
	return r
}

// fieldMap has the fields of a section by their names.
func fieldMap(fields []cli.Field) map[string]string {
	all := map[string]string{}
	for _, f := range fields {
		all[strings.Trim(f[0], "()")] = f[1]
	}
	return all
}

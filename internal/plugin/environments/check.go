package environments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/policy"
)

const checkLong = `Check whether a call would be allowed, without running it. The output also shows the policy, the environment, the
directory, the command line, the time limit, which walls would hold the call's processes, and the variables. A line
"Warning" says what of the policy is weaker than it looks. The flags are those of run.

The API server validates and admits the call in a dry run. Then the operator decides about it as it would about a call that
is created, in a ToolCallReview: you need no permission to read policies. With --as, call and rights are the other user's. With
--policy or --policy-file the call is judged under another policy than the environment's: one that you may use or read, or
one in a file, for those who may create policies. Variables appear with names and sources; values
appear only if the call itself sets them. The command can't check what only the pod knows: whether the program and the
directory exist, and whether the kernel of its node can hold the walls.

The exit code is 0 if the call would be allowed, 126 if it would be denied, and 125 if it would fail before it starts
or if the result is unknown, for example because an authorizer doesn't answer.`

const checkExample = `  kubectl toolcall check -- git push
  kubectl toolcall check --environment repo --shell 'make test | tail'
  kubectl toolcall check --code python -f script.py
  kubectl toolcall check -o jsonpath='{.allowed}' -- git push
  kubectl toolcall check --policy-file stricter.yaml -- git push
  kubectl toolcall check --as system:serviceaccount:agents:agent -- git status`

func newCheck(c *cli.CLI) *cobra.Command {
	var flags calls.Flags
	var policyName, policyFile string
	formats := cli.NewFormats()
	command := &cobra.Command{
		Use:         "check [flags] -- PROGRAM [ARGUMENT...]",
		Short:       "Check whether a call would be allowed",
		Long:        checkLong,
		Example:     checkExample,
		Annotations: map[string]string{cli.AnnotationCode: "yes"},
		RunE: c.Connected(func(ctx context.Context, cluster *cli.Cluster, args []string) error {
			if policyFile == "-" && flags.ReadsStdin() {
				return errors.New("standard input can be the policy (--policy-file -) or what the call reads (--stdin, -f -), not both")
			}
			call, err := flags.Build(args, c.In)
			if err != nil {
				return err
			}
			spec, err := otherPolicy(policyName, policyFile, c.In)
			if err != nil {
				return err
			}
			call.Namespace = cluster.Namespace
			admitted, err := cluster.DryRun().Create(ctx, call)
			if err != nil {
				return err
			}
			v, err := judge(ctx, cluster, admitted, spec)
			if err != nil {
				return err
			}
			return v.print(cluster, formats)
		}),
	}
	flags.Add(command, c)
	cli.AddNameFlag(command, "policy", "ExecutionPolicy to judge the call under, in place of the environment's", cli.CompleteFrom(),
		func(name string) { policyName = name })
	cli.AddNameFlag(command, "policy-file", "file with an ExecutionPolicy to judge the call under, in place of the environment's",
		cobra.FixedCompletions(policy.Extensions, cobra.ShellCompDirectiveFilterFileExt), func(name string) { policyFile = name })
	command.MarkFlagsMutuallyExclusive("policy", "policy-file")
	return formats.Add(command)
}

// otherPolicy is a review's spec that names another policy than the environment's, or has that of a file.
func otherPolicy(name, file string, stdin io.Reader) (spec subresourcesv1alpha1.ToolCallReviewSpec, err error) {
	spec.PolicyName = name
	if file == "" {
		return spec, nil
	}
	given, err := policy.ReadOne(file, stdin)
	if err != nil {
		return spec, fmt.Errorf("read the policy: %w", err)
	}
	spec.Policy = &given.Spec
	return spec, nil
}

// print prints the verdict. The error has the exit code.
func (v *verdict) print(c *cli.Cluster, formats *cli.Formats) error {
	var err error
	if formats.IsObject() {
		err = formats.PrintReport(c.Out, "Check", "check", v.report())
	} else {
		err = v.write(c.Out)
	}
	if err != nil {
		return err
	}
	switch {
	case v.Denial != nil && v.Denial.Phase == v1alpha1.PhaseDenied:
		return &cli.ExitError{Code: cli.CodeDenied}
	case v.Denial != nil:
		return &cli.ExitError{Code: cli.CodeFailed}
	case v.Undecided != "":
		return &cli.ExitError{Code: cli.CodeFailed, Err: fmt.Errorf("unknown whether the call would be allowed: %s", v.Undecided)}
	default:
		return nil
	}
}

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
	// Approval is what people have to decide before the call starts.
	Approval       *subresourcesv1alpha1.ReviewApproval `json:"approval,omitempty"`
	Command        string                               `json:"command,omitempty"`
	TimeoutSeconds float64                              `json:"timeoutSeconds,omitempty"`
	Walls          map[string]string                    `json:"walls,omitempty"`
	Variables      map[string]string                    `json:"variables,omitempty"`
}

func (v *verdict) report() *checkReport {
	r := &checkReport{
		Allowed: "yes", MayUse: v.MayUse, Requester: v.call.RequesterName(), Tool: v.Tool, Approval: v.Approval,
		Warnings: v.Warnings, Environment: v.Environment,
	}
	switch {
	case v.Denial != nil:
		r.Allowed, r.Denied, r.Reason, r.Message = "no", v.Denial.Phase == v1alpha1.PhaseDenied, v.Denial.Reason, v.Denial.Message
	case v.Undecided != "":
		r.Allowed, r.Message = "unknown", v.Undecided
	}
	if v.Environment != "" {
		r.Policy = v.policyName()
	}
	if v.environment != nil {
		r.Image = v.environment.Spec.Image
	}
	if v.InEffect != nil {
		r.Command, r.TimeoutSeconds = v.command(), v.timeout().Seconds()
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

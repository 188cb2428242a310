// Package initialize implements "kubectl toolcall init": from an installed operator to an agent that runs calls.
//
// Input are flags: a namespace, the agent's name, one of four policies by name, and what narrows or widens it. From these a pure function
// (plan.objects) makes the objects, as typed structs. They are printed as YAML, or applied with server-side apply; then the agent gets a
// kubeconfig with a token of its own.
//
// Invariants: the same flags make the same objects; a policy is only written if its own examples come out as they expect; objects that init
// didn't write are never changed, and neither are files; the kubeconfig has no credentials of the user. What is printed or written comes
// from an encoder, so that no value of a flag becomes syntax.
package initialize

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/internal/plugin/cli"
)

const initLong = `Write what an agent needs to run calls: a namespace, a policy with examples, an environment, an account with its
rights, and a kubeconfig for the agent. At the end, init prints the lines of Python and TypeScript that run a first call.

The policy is one of four, and every call under it is restricted by the node's kernel:

  read-only  bash, git and programs that read; no writing, no network. Mount what they read below /workspace,
             by volumes of the environment
  coding     bash, git, make, python and the usual utilities; writes below /workspace and /tmp
  data       python code and files in the workspace; no shell, no network
  ci         as coding, for longer, and programs that a call builds may run

--tools replaces the tools of the policy: "bash" are shell lines with the usual utilities, "python", "javascript", "ruby"
and "perl" are code and the interpreter, "file.read" and "file.write" are file actions, and any other name is a program.
Calls run in the image of --image; the default is that of the local node. They reach no host but those of --hosts.
--approve has a person decide about calls that name these words. It reads the text of calls, and aliases, scripts in
files or a program can hide a command from it: it is a reminder. The wall is --hosts and the kernel.

init can be repeated: it changes only what differs. It never changes objects that it didn't write, and an existing
namespace stays as it is. A field that somebody else has changed since stays too, unless you set --force-conflicts.
--dry-run prints the objects as YAML, for Git, and needs no cluster.

You need the rights to create namespaces, ExecutionPolicies, Roles and RoleBindings, and tokens of the account.`

const initExample = `  kubectl toolcall init agents --agent coder
  kubectl toolcall init agents --agent coder --tools bash,python,git --hosts git.example.com --approve 'git push'
  kubectl toolcall init agents --agent analyst --policy data --image registry.example/python:1 --kubeconfig-out analyst.yaml
  kubectl toolcall init agents --agent coder --dry-run > agents.yaml`

// options are the flags.
type options struct {
	*cli.CLI
	namespace, agent      string
	policy, image         string
	tools, hosts, approve []string
	dryRun                string
	force                 bool
	kubeconfig            string
	tokenDuration         time.Duration
}

// Commands are the commands of the package.
func Commands(c *cli.CLI) []*cobra.Command {
	o := &options{CLI: c}
	command := &cobra.Command{
		Use:               "init NAMESPACE --agent NAME",
		Short:             "Write what an agent needs to run calls",
		Long:              initLong,
		Example:           initExample,
		ValidArgsFunction: c.CompleteArguments(1, cli.ListNamespaces),
		RunE: func(command *cobra.Command, args []string) error {
			if err := o.take(args); err != nil {
				return err
			}
			return o.run(command.Context())
		},
	}
	o.addFlags(command)
	return []*cobra.Command{command}
}

func (o *options) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.agent, "agent", "", "name of the agent: its account, environment and rights get it (required)")
	flags.StringVar(&o.policy, "policy", "coding", "policy to write, one of: "+strings.Join(presetNames(), ", "))
	cli.Must(command.RegisterFlagCompletionFunc("policy", cli.CompleteFrom(presetNames()...)))
	flags.StringSliceVar(&o.tools, "tools", nil, "tools that the agent may use, instead of the policy's own, e.g. bash,python,git")
	flags.StringSliceVar(&o.hosts, "hosts", nil, "hosts that calls may reach, each HOST or HOST:PORT: a name, *. and a name, an address or a CIDR (default port 443)")
	flags.StringArrayVar(&o.approve, "approve", nil, "a program and arguments, e.g. 'git push': a reminder that has a person approve the calls whose text names them; repeat it for several")
	flags.StringVar(&o.image, "image", defaultImage, "image that calls run in; the default is that of the local node")
	cli.AddChoice(command, &o.dryRun, "dry-run", "none", `"client" prints the objects as YAML and writes nothing`, "client", "none")
	flags.Lookup("dry-run").NoOptDefVal = "client"
	flags.BoolVar(&o.force, "force-conflicts", false, "set fields back that somebody else has changed in objects of init")
	cli.AddNameFlag(command, "kubeconfig-out", `file for the agent's kubeconfig, "-" for none (default "NAME.kubeconfig")`,
		cobra.FixedCompletions([]string{"kubeconfig", "yaml"}, cobra.ShellCompDirectiveFilterFileExt), func(name string) { o.kubeconfig = name })
	flags.DurationVar(&o.tokenDuration, "token-duration", 24*time.Hour, "how long the token in the kubeconfig is valid; the API server can shorten it")
}

// take checks the argument and the flags that aren't part of the plan.
func (o *options) take(args []string) error {
	if len(args) != 1 {
		return errors.New("specify one namespace: kubectl toolcall init NAMESPACE --agent NAME")
	}
	o.namespace = args[0]
	if flag := *o.Flags.Namespace; flag != "" && flag != o.namespace {
		return fmt.Errorf("-n %s and the argument %s name two namespaces: leave -n out", flag, o.namespace)
	}
	if o.tokenDuration < 10*time.Minute || o.tokenDuration > maxTokenDuration {
		return fmt.Errorf("--token-duration %s: must be from 10m to %s", o.tokenDuration, maxTokenDuration)
	}
	if o.kubeconfig == "" {
		o.kubeconfig = o.agent + ".kubeconfig"
	}
	return nil
}

func (o *options) run(ctx context.Context) error {
	p, err := newPlan(o)
	if err != nil {
		return err
	}
	if o.dryRun == "client" {
		return o.print(p)
	}
	if o.kubeconfig != noKubeconfig {
		if err := checkReplaceable(o.kubeconfig, p.account()); err != nil {
			return err
		}
	}
	cluster, err := o.Connect()
	if err != nil {
		return err
	}
	a := &applier{Cluster: cluster, plan: p, force: o.force}
	if err := a.run(ctx); err != nil {
		return err
	}
	return o.handOver(ctx, a)
}

// handOver gives the agent its kubeconfig, and prints what to do next.
func (o *options) handOver(ctx context.Context, a *applier) error {
	if len(a.plan.phrases) > 0 {
		o.Note(false, "--approve is a reminder: it reads the text of calls, and can miss a command. What calls may reach is in --hosts.")
		o.Note(false, "People who may approve need the ClusterRole toolcall-approver: kubectl create rolebinding approvers -n %s --clusterrole=toolcall-approver --group=GROUP", a.plan.namespace)
	}
	if o.kubeconfig == noKubeconfig {
		fmt.Fprintf(o.Out, "\nIn a pod with the ServiceAccount %s, run:\n\n%s", a.plan.agent, a.plan.lines())
		return nil
	}
	until, err := a.writeKubeconfig(ctx, o.kubeconfig, o.tokenDuration)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "%s written, valid until %s\n\nAs the agent, with KUBECONFIG=%s, run:\n\n%s",
		o.kubeconfig, until.UTC().Format(time.RFC3339), o.kubeconfig, a.plan.lines())
	return nil
}

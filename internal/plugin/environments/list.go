// Package environments has the commands about environments and their policies, and those that say what may run in them: tools, check and
// explain-denial. The last two show what the operator answers to a ToolCallReview.
package environments

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/policy"
	"toolcall.dev/operator/internal/plugin/terminal"
)

// Commands are the commands about environments, and about what may run in them.
func Commands(c *cli.CLI) []*cobra.Command {
	return []*cobra.Command{newEnv(c), newTools(c), newCheck(c), newExplainDenial(c)}
}

func newEnv(c *cli.CLI) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:     "env",
		Aliases: []string{"envs", "environment", "environments"},
		Short:   "List, describe, suspend and resume environments",
		Example: "  kubectl toolcall env list\n  kubectl toolcall env describe tools\n  kubectl toolcall env suspend tools",
	}, newEnvList(c), newEnvDescribe(c),
		newSetSuspend(c, true, "suspended", &cobra.Command{Use: "suspend NAME...", Short: "Stop new calls in environments from starting", Long: suspendLong}),
		newSetSuspend(c, false, "resumed", &cobra.Command{Use: "resume NAME...", Short: "Let calls in suspended environments start again", Long: resumeLong}))
}

const envListLong = `List the environments that calls can run in.

The column ALLOWS shows what the policy of the environment allows, if you have permission to list policies: the listed
programs (any program if it lists none), shell for shell command lines, and the languages of code. To use a tool you
need permission of your own: run "kubectl toolcall check" to find out.

Notes on standard error say why an environment isn't ready, for example because the nodes can't hold its policy
(IsolationUnavailable), what isn't held in it though calls can run, and what of a policy is weaker than it looks.`

func newEnvList(c *cli.CLI) *cobra.Command {
	all, formats := false, cli.NewFormats()
	command := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls", "get"},
		Short:   "List the environments that calls can run in",
		Long:    envListLong,
		Example: "  kubectl toolcall env list\n  kubectl toolcall env list -A\n  kubectl toolcall env list -o name",
		Args:    cli.RequireNothing,
		RunE: c.Connected(func(ctx context.Context, cluster *cli.Cluster, _ []string) error {
			namespace, where := cluster.Scope(all)
			list := &v1alpha1.ExecutionEnvironmentList{}
			if err := cluster.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
				return cluster.Explain("list", "executionenvironments", "environments", err)
			}
			if formats.IsObject() {
				return formats.Print(c.Out, list)
			}
			if len(list.Items) == 0 {
				fmt.Fprintf(c.ErrOut, "No environments found%s Calls need one to run in.\n", where)
				return nil
			}
			return writeEnvironments(ctx, cluster, list.Items, all)
		}),
	}
	command.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list the environments of all namespaces")
	return formats.Add(command)
}

func writeEnvironments(ctx context.Context, c *cli.Cluster, environments []v1alpha1.ExecutionEnvironment, namespaces bool) error {
	slices.SortFunc(environments, func(a, b v1alpha1.ExecutionEnvironment) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	w := cli.NewTable(c.Out)
	w.Namespaces = namespaces
	w.Row("NAMESPACE", "NAME", "IMAGE", "DEFAULT", "POLICY", "READY", "WARM", "ALLOWS")
	policies := policy.ReadSet(ctx, c.Asker)
	for i := range environments {
		env := &environments[i]
		w.Row(env.Namespace, env.Name, env.Spec.Image, isDefault(env), env.Spec.PolicyName(), state(env), Warm(env), allows(policies, env))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, note := range notes(policies, environments, namespaces) {
		c.Note(false, "note: %s", terminal.SafeLine(note))
	}
	return nil
}

// notes say why environments aren't ready or don't hold all, and which of their policies are weaker than they look: each once.
func notes(policies *policy.Set, environments []v1alpha1.ExecutionEnvironment, namespaces bool) []string {
	var all []string
	for i := range environments {
		env := &environments[i]
		name := env.Name
		if namespaces {
			name = env.Namespace + "/" + name
		}
		if why := NotReady(env); why != "" {
			all = append(all, fmt.Sprintf("environment %s is not ready: %s", name, why))
		}
		if but := ReadyBut(env); but != "" {
			all = append(all, fmt.Sprintf("environment %s: %s", name, but))
		}
		policy, err := policies.For(env)
		if err != nil || policy == nil {
			continue
		}
		if note := fmt.Sprintf("policy %s is weaker than it looks: %s", policy.Name, Weakness(policy)); Weakness(policy) != "" && !slices.Contains(all, note) {
			all = append(all, note)
		}
	}
	return all
}

// Weakness is what is weaker in a policy than it looks, empty for nothing, and for the built-in defaults.
func Weakness(policy *v1alpha1.ExecutionPolicy) string {
	if policy == nil {
		return ""
	}
	weak := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionWeak)
	if weak == nil || weak.Status != metav1.ConditionTrue {
		return ""
	}
	return weak.Message
}

// NotReady is why calls can't run in an environment, as far as the operator has found out.
func NotReady(env *v1alpha1.ExecutionEnvironment) string {
	c := meta.FindStatusCondition(env.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status != metav1.ConditionFalse {
		return ""
	}
	return c.Reason + ": " + c.Message
}

// ReadyBut says what isn't held in an environment in which calls can run; empty for nothing.
func ReadyBut(env *v1alpha1.ExecutionEnvironment) string {
	c := meta.FindStatusCondition(env.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status != metav1.ConditionTrue || !strings.HasPrefix(c.Message, v1alpha1.MessageReadyBut) {
		return ""
	}
	return c.Message
}

func isDefault(env *v1alpha1.ExecutionEnvironment) string {
	if env.Annotations[v1alpha1.AnnotationDefaultEnvironment] == "true" {
		return "yes"
	}
	return ""
}

// state is the condition Ready, and whether the environment is suspended.
func state(env *v1alpha1.ExecutionEnvironment) string {
	if env.Spec.Suspend {
		return ready(env) + ", suspended"
	}
	return ready(env)
}

func ready(env *v1alpha1.ExecutionEnvironment) string {
	c := meta.FindStatusCondition(env.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case c == nil:
		return "Unknown"
	case c.Status == metav1.ConditionTrue:
		return "True"
	default:
		return string(c.Status) + " (" + c.Reason + ")"
	}
}

func Warm(env *v1alpha1.ExecutionEnvironment) string {
	if env.Status.Warm == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d", env.Status.Warm.Ready, env.Status.Warm.Desired)
}

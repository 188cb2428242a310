package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

func newEnv(s *session) *cobra.Command {
	command := &cobra.Command{
		Use:     "env",
		Aliases: []string{"envs", "environment", "environments"},
		Short:   "Look at environments",
		Example: "  kubectl toolcall env list",
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newEnvList(s))
	return command
}

const envListLong = `List the environments that calls can run in.

ALLOWS is what the environment's policy lets calls run, if you may read policies: the programs it lists (any, when it
lists none), shell for shell lines, and the languages of code. Which of them you may use is a right of its own:
check tells.`

// envListOptions are the flags of env list.
type envListOptions struct {
	*session
	allNamespaces bool
	print         *genericclioptions.PrintFlags
}

func newEnvList(s *session) *cobra.Command {
	o := &envListOptions{session: s, print: genericclioptions.NewPrintFlags("").WithTypeSetter(scheme())}
	command := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls", "get"},
		Short:   "List the environments that calls can run in",
		Long:    envListLong,
		Example: "  kubectl toolcall env list\n  kubectl toolcall env list -A\n  kubectl toolcall env list -o name",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.run(command.Context())
		},
	}
	command.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "of every namespace")
	o.print.AddFlags(command)
	return command
}

func (o *envListOptions) run(ctx context.Context) error {
	c, err := o.connect()
	if err != nil {
		return err
	}
	namespace := c.namespace
	if o.allNamespaces {
		namespace = ""
	}
	list := &v1alpha1.ExecutionEnvironmentList{}
	if err := c.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return c.readError("environments", err)
	}
	if *o.print.OutputFormat != "" {
		return o.objects(list)
	}
	if len(list.Items) == 0 {
		fmt.Fprintf(o.ErrOut, "No environments found in namespace %q: calls there can't run until somebody creates one.\n", namespace)
		return nil
	}
	return o.table(ctx, c, list.Items)
}

func (o *envListOptions) objects(list *v1alpha1.ExecutionEnvironmentList) error {
	printer, err := o.print.ToPrinter()
	if err != nil {
		return err
	}
	if *o.print.OutputFormat != "name" {
		return printer.PrintObj(list, o.Out)
	}
	for i := range list.Items {
		if err := printer.PrintObj(&list.Items[i], o.Out); err != nil {
			return err
		}
	}
	return nil
}

func (o *envListOptions) table(ctx context.Context, c *cluster, environments []v1alpha1.ExecutionEnvironment) error {
	slices.SortFunc(environments, func(a, b v1alpha1.ExecutionEnvironment) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	w := newTable(o.Out)
	columns := []string{"NAME", "IMAGE", "DEFAULT", "POLICY", "READY", "WARM", "ALLOWS"}
	if o.allNamespaces {
		columns = append([]string{"NAMESPACE"}, columns...)
	}
	fmt.Fprintln(w, strings.Join(columns, "\t"))
	policies := newPolicyReader(c)
	for i := range environments {
		env := &environments[i]
		cells := []string{env.Name, env.Spec.Image, isDefault(env), env.Spec.PolicyName(), ready(env), warm(env), policies.allows(ctx, env)}
		if o.allNamespaces {
			cells = append([]string{env.Namespace}, cells...)
		}
		for n, cell := range cells {
			cells[n] = oneLine(orNone(cell))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

func isDefault(env *v1alpha1.ExecutionEnvironment) string {
	if env.Annotations[v1alpha1.AnnotationDefaultEnvironment] == "true" {
		return "yes"
	}
	return ""
}

func ready(env *v1alpha1.ExecutionEnvironment) string {
	c := meta.FindStatusCondition(env.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case c == nil:
		return "Unknown"
	case c.Status == "True":
		return "True"
	default:
		return string(c.Status) + " (" + c.Reason + ")"
	}
}

func warm(env *v1alpha1.ExecutionEnvironment) string {
	if env.Status.Warm == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d", env.Status.Warm.Ready, env.Status.Warm.Desired)
}

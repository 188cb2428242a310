package plugin

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/terminal"
)

// completionTimeout bounds how long the shell waits after the tab key.
const completionTimeout = 3 * time.Second

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

func completeFrom(values ...string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeCalls completes the names of up to limit calls, or of any number if limit is negative.
func (c *cli) completeCalls(limit int) completer {
	return c.completeArguments(limit, func() client.ObjectList { return &v1alpha1.ToolCallList{} })
}

// completeCallsIn completes the names of any number of calls in some phases.
func (c *cli) completeCallsIn(inPhases ...string) completer {
	return func(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		cluster, err := c.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names, err := (&callTargets{all: true}).resolve(ctx, cluster, nil, inPhases...)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names = withPrefix(names, prefix)
		return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeArguments completes the names of up to limit different objects.
func (c *cli) completeArguments(limit int, list func() client.ObjectList) completer {
	return func(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if limit >= 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, directive := c.complete(list(), prefix)
		return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), directive
	}
}

func (c *cli) completeEnvironments(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return c.complete(&v1alpha1.ExecutionEnvironmentList{}, prefix)
}

// completeEnvironmentArguments completes any number of environments.
func (c *cli) completeEnvironmentArguments(command *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return c.completeArguments(-1, func() client.ObjectList { return &v1alpha1.ExecutionEnvironmentList{} })(command, args, prefix)
}

// completeTools completes the program of a call with the tools that the user may use, and leaves its arguments to the shell.
func (c *cli) completeTools(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	cluster, err := c.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	rights, err := cluster.toolRights(ctx, nil)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return withPrefix(rights.programs(), prefix), cobra.ShellCompDirectiveDefault
}

func (c *cli) completeSkills(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return c.complete(&v1alpha1.SkillList{}, prefix)
}

func (c *cli) completeSessions(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return c.complete(&v1alpha1.ToolSessionList{}, prefix)
}

// completeSessionArguments completes the names of up to limit sessions, or of any number if limit is negative.
func (c *cli) completeSessionArguments(limit int) completer {
	return c.completeArguments(limit, func() client.ObjectList { return &v1alpha1.ToolSessionList{} })
}

// complete returns the names of objects that start with a prefix. On any error there are none.
func (c *cli) complete(list client.ObjectList, prefix string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	cluster, err := c.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names, err := cluster.names(ctx, list)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return withPrefix(names, prefix), cobra.ShellCompDirectiveNoFileComp
}

// completeRequesters completes the users who created the namespace's calls.
func (c *cli) completeRequesters(command *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	cluster, err := c.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	q := callQuery{namespace: cluster.namespace}
	if all, err := command.Flags().GetBool("all-namespaces"); err == nil && all {
		q.namespace = ""
	}
	table, err := cluster.callTable(ctx, q)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	column := columnIndex(table.ColumnDefinitions, "Requested-By")
	for i := range table.Rows {
		names = append(names, terminal.SafeLine(cellText(&table.Rows[i], column)))
	}
	return slices.Compact(withPrefix(names, prefix)), cobra.ShellCompDirectiveNoFileComp
}

func (c *cli) completeNamespaces(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	cluster, err := c.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list, err := cluster.core.Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return withPrefix(names, prefix), cobra.ShellCompDirectiveNoFileComp
}

func (c *cli) completeContexts(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return c.completeConfig(prefix, func(config *api.Config) []string { return keys(config.Contexts) })
}

func (c *cli) completeClusters(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return c.completeConfig(prefix, func(config *api.Config) []string { return keys(config.Clusters) })
}

func (c *cli) completeUsers(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return c.completeConfig(prefix, func(config *api.Config) []string { return keys(config.AuthInfos) })
}

func (c *cli) completeConfig(prefix string, names func(*api.Config) []string) ([]string, cobra.ShellCompDirective) {
	config, err := c.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return withPrefix(names(&config), prefix), cobra.ShellCompDirectiveNoFileComp
}

func keys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	return names
}

func withPrefix(names []string, prefix string) []string {
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	slices.Sort(names)
	return names
}

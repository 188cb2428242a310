package plugin

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd/api"

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

// lister lists what an argument or the value of a flag can be.
type lister func(context.Context, *cluster) ([]string, error)

// complete completes what a list has. On any error there is nothing.
func (c *cli) complete(list lister) completer {
	return func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		cluster, err := c.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names, err := list(ctx, cluster)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return withPrefix(names, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeArguments completes up to limit different arguments, or any number if limit is negative.
func (c *cli) completeArguments(limit int, list lister) completer {
	return func(command *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if limit >= 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, directive := c.complete(list)(command, args, prefix)
		return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), directive
	}
}

// completeTools completes the program of a call with the tools that the user may use, and leaves its arguments to the shell.
func (c *cli) completeTools(command *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	names, directive := c.complete(listPrograms)(command, args, prefix)
	if directive != cobra.ShellCompDirectiveError {
		directive = cobra.ShellCompDirectiveDefault
	}
	return names, directive
}

func listCalls(ctx context.Context, c *cluster) ([]string, error) {
	return c.names(ctx, &v1alpha1.ToolCallList{})
}

func listEnvironments(ctx context.Context, c *cluster) ([]string, error) {
	return c.names(ctx, &v1alpha1.ExecutionEnvironmentList{})
}

func listSessions(ctx context.Context, c *cluster) ([]string, error) {
	return c.names(ctx, &v1alpha1.ToolSessionList{})
}

func listSkills(ctx context.Context, c *cluster) ([]string, error) {
	return c.names(ctx, &v1alpha1.SkillList{})
}

// listUnfinishedCalls lists those that can be cancelled.
func listUnfinishedCalls(ctx context.Context, c *cluster) ([]string, error) {
	return (&callTargets{all: true}).resolve(ctx, c, nil, unfinished...)
}

// listPrograms lists the tools that the user may use.
func listPrograms(ctx context.Context, c *cluster) ([]string, error) {
	rights, err := c.toolRights(ctx, nil)
	if err != nil {
		return nil, err
	}
	return rights.programs(), nil
}

func listNamespaces(ctx context.Context, c *cluster) ([]string, error) {
	list, err := c.core.Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// listRequesters lists the users who created the namespace's calls, or those of all namespaces if the command is for them.
func listRequesters(command *cobra.Command) lister {
	return func(ctx context.Context, c *cluster) ([]string, error) {
		q := callQuery{namespace: c.namespace}
		if all, err := command.Flags().GetBool("all-namespaces"); err == nil && all {
			q.namespace = ""
		}
		table, err := c.callTable(ctx, q)
		if err != nil {
			return nil, err
		}
		var names []string
		column := columnIndex(table.ColumnDefinitions, "Requested-By")
		for i := range table.Rows {
			names = append(names, terminal.SafeLine(cellText(&table.Rows[i], column)))
		}
		slices.Sort(names)
		return slices.Compact(names), nil
	}
}

// completeConfig completes names that the kubeconfig has.
func (c *cli) completeConfig(names func(*api.Config) []string) completer {
	return func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		config, err := c.flags.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return withPrefix(names(&config), prefix), cobra.ShellCompDirectiveNoFileComp
	}
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

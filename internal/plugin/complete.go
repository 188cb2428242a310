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
)

// completionPatience bounds what a person waits for after the tab key.
const completionPatience = 3 * time.Second

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

func completeFrom(values ...string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeCalls completes the names of up to limit calls, of any number when it is negative.
func (s *session) completeCalls(limit int) completer {
	return func(_ *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		if limit >= 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, directive := s.complete(&v1alpha1.ToolCallList{}, start)
		return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), directive
	}
}

func (s *session) completeEnvironments(_ *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
	return s.complete(&v1alpha1.ExecutionEnvironmentList{}, start)
}

func (s *session) completeSkills(_ *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
	return s.complete(&v1alpha1.SkillList{}, start)
}

// complete gives the names of objects that begin with start. Whatever goes wrong, there are none.
func (s *session) complete(list client.ObjectList, start string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	c, err := s.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names, err := c.names(ctx, list)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return beginning(names, start), cobra.ShellCompDirectiveNoFileComp
}

func (s *session) completeNamespaces(_ *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	c, err := s.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list, err := c.core.Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return beginning(names, start), cobra.ShellCompDirectiveNoFileComp
}

func (s *session) completeContexts(_ *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
	return s.completeConfig(start, func(c *api.Config) []string { return keys(c.Contexts) })
}

func (s *session) completeClusters(_ *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
	return s.completeConfig(start, func(c *api.Config) []string { return keys(c.Clusters) })
}

func (s *session) completeUsers(_ *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
	return s.completeConfig(start, func(c *api.Config) []string { return keys(c.AuthInfos) })
}

func (s *session) completeConfig(start string, names func(*api.Config) []string) ([]string, cobra.ShellCompDirective) {
	config, err := s.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return beginning(names(&config), start), cobra.ShellCompDirectiveNoFileComp
}

func keys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	return names
}

func beginning(names []string, start string) []string {
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, start) })
	slices.Sort(names)
	return names
}

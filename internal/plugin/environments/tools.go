package environments

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const toolsLong = `Show which tools you may use in the namespace, and what of that the policy of each environment allows.

The first lines are your own rights: the verb "use" on tools, as the API server lists them. A tool is a program, bash for
shell command lines, a language for code, or a file tool. Where the cluster can't list all rights, the tools of the policies
are asked for one by one. The file tools are file.read, which also lists and searches, and file.write, which also edits, moves and
deletes.

The table shows both together: a call needs the right to use its tool, unless the policy's ACCESS is Open, and the policy must
allow it. ? stands for what you have no permission to see: policies need the ClusterRole toolcall-policy-viewer. What a single
call may do, with its arguments, says "kubectl toolcall check".

--as shows what somebody else may use, if you may impersonate them: the rights are theirs, environments and policies are read with
yours. The exit code is 0, also if you may use nothing, and 1 if
the rights or the environments can't be read; without permission to list environments, your rights are shown all the same.`

const toolsExample = `  kubectl toolcall tools
  kubectl toolcall tools -o json
  kubectl toolcall tools -o name`

const (
	toolShell = "bash"
	// unseen stands for what the user has no permission to see.
	unseen = "?"
)

// toolsReport are what tools prints with -o.
type toolsReport struct {
	Namespace    string             `json:"namespace"`
	Rights       *cli.Rights        `json:"rights"`
	Environments []environmentTools `json:"environments"`
}

// environmentTools are what the user may use in an environment.
type environmentTools struct {
	Name    string `json:"name"`
	Default bool   `json:"default"`
	Policy  string `json:"policy"`
	// Access is RBAC or Open, and "?" if the policy can't be read.
	Access string `json:"access"`
	// Programs, Shell, Languages and Files are what the policy and the user's rights allow together. Files are "read" and "write":
	// which paths, the policy and the environment say.
	Programs  string   `json:"programs"`
	Shell     string   `json:"shell"`
	Languages []string `json:"languages"`
	Files     []string `json:"files"`
	// Problem says why nothing can run, empty for nothing.
	Problem string `json:"problem,omitempty"`
}

func newTools(c *cli.CLI) *cobra.Command {
	formats := cli.NewFormats()
	command := &cobra.Command{
		Use:     "tools",
		Short:   "Show what you may use in the namespace",
		Long:    toolsLong,
		Example: toolsExample,
		Args:    cobra.NoArgs,
		RunE: c.Connected(func(ctx context.Context, cluster *cli.Cluster, _ []string) error {
			return tools(ctx, cluster, formats)
		}),
	}
	formats.Add(command)
	return command
}

func tools(ctx context.Context, c *cli.Cluster, formats *cli.Formats) error {
	list := &v1alpha1.ExecutionEnvironmentList{}
	listErr := c.Asker.List(ctx, list, client.InNamespace(c.Namespace))
	if listErr != nil && !apierrors.IsForbidden(listErr) {
		return c.ReadError("environments", listErr)
	}
	policies := newPolicyReader(c)
	rights, err := c.ToolRights(ctx, candidateTools(ctx, policies, list.Items))
	if err != nil {
		return err
	}
	report := &toolsReport{Namespace: c.Namespace, Rights: rights, Environments: []environmentTools{}}
	for i := range list.Items {
		report.Environments = append(report.Environments, usableIn(ctx, policies, rights, &list.Items[i]))
	}
	switch {
	case formats.IsWhole():
		err = formats.PrintReport(c.Out, "ToolRights", "", report)
	case formats.IsObject():
		err = formats.Print(c.Out, rightsList(rights))
	default:
		err = report.write(c)
	}
	if err != nil || listErr == nil {
		return err
	}
	return c.ReadError("environments", cli.PermissionError("list executionenvironments", listErr))
}

// candidateTools are the tools that policies name, after those that need no name in a policy.
func candidateTools(ctx context.Context, policies *policyReader, environments []v1alpha1.ExecutionEnvironment) []string {
	var tools []string
	for i := range environments {
		policy, err := policies.policyFor(ctx, &environments[i])
		if err != nil || policy == nil {
			continue
		}
		if b := policy.Spec.Binaries; b != nil {
			tools = append(tools, b.Allowed...)
		}
		if code := policy.Spec.Code; code != nil {
			tools = append(tools, code.Languages...)
		}
	}
	slices.Sort(tools)
	return append([]string{toolShell, "python", guards.ToolFileRead, guards.ToolFileWrite}, slices.Compact(tools)...)
}

// usableIn is what the user may use in an environment.
func usableIn(ctx context.Context, policies *policyReader, rights *cli.Rights, env *v1alpha1.ExecutionEnvironment) environmentTools {
	used := environmentTools{
		Name: env.Name, Default: isDefault(env) != "", Policy: policyOf(ctx, policies, env),
		Access: unseen, Programs: unseen, Shell: unseen, Languages: []string{}, Files: []string{}, Problem: NotReady(env),
	}
	policy, err := policies.policyFor(ctx, env)
	if apierrors.IsForbidden(err) {
		return used
	}
	if err != nil {
		used.Problem, used.Programs, used.Shell = err.Error(), "none", "no"
		return used
	}
	used.fill(specOf(policy), rights)
	return used
}

// fill combines a policy with rights.
func (e *environmentTools) fill(spec *v1alpha1.ExecutionPolicySpec, rights *cli.Rights) {
	e.Access = cmp.Or(string(spec.Access), string(v1alpha1.AccessRBAC))
	if spec.Access == v1alpha1.AccessOpen {
		rights = &cli.Rights{AnyTool: true, Complete: true}
	}
	e.Programs = usablePrograms(spec.Binaries, rights)
	e.Shell = "no"
	if s := spec.Shell; s != nil && s.Enabled != nil && *s.Enabled && rights.May(toolShell) {
		e.Shell = "yes"
	}
	if code := spec.Code; code == nil || code.Enabled == nil || *code.Enabled {
		e.Languages = usableLanguages(code, rights)
	}
	e.Files = usableFiles(spec.Files, rights)
}

// usableFiles are the kinds of file actions that a policy allows somewhere and the user may use.
func usableFiles(f *v1alpha1.FilesPolicy, rights *cli.Rights) []string {
	isNowhere := func(paths []string) bool { return paths != nil && len(paths) == 0 }
	noWriting := f != nil && isNowhere(f.WritePaths)
	kinds := []string{}
	// What may be written may be read.
	if rights.May(guards.ToolFileRead) && !(noWriting && isNowhere(f.ReadPaths)) {
		kinds = append(kinds, "read")
	}
	if rights.May(guards.ToolFileWrite) && !noWriting {
		kinds = append(kinds, "write")
	}
	return kinds
}

// usablePrograms are the programs that a policy lists and the user may use.
func usablePrograms(b *v1alpha1.BinariesPolicy, rights *cli.Rights) string {
	listsAny := b == nil || len(b.Allowed) == 0 && b.Mode != v1alpha1.BinariesEnforced
	switch {
	case listsAny && rights.AnyTool:
		return "any"
	case listsAny && len(rights.Programs()) > 0:
		return JoinFirst(rights.Programs())
	case listsAny:
		return "none"
	}
	usable := slices.DeleteFunc(slices.Clone(b.Allowed), func(program string) bool {
		return !rights.May(program) && !hasPrefixOf(rights.Names, program)
	})
	if len(usable) == 0 {
		return "none"
	}
	return JoinFirst(usable)
}

// hasPrefixOf reports whether a name lies in a listed directory, which ends in a slash.
func hasPrefixOf(names []string, directory string) bool {
	return strings.HasSuffix(directory, "/") && slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, directory) })
}

// usableLanguages are the languages that a policy allows and the user may use; "any" for no bound.
func usableLanguages(code *v1alpha1.CodePolicy, rights *cli.Rights) []string {
	languages := []string{"python"}
	if code != nil && code.Languages != nil {
		languages = slices.Clone(code.Languages)
	}
	if len(languages) > 0 {
		return slices.DeleteFunc(languages, func(language string) bool { return !rights.May(language) })
	}
	if rights.AnyTool {
		return []string{"any"}
	}
	return slices.DeleteFunc(slices.Clone(rights.Names), func(tool string) bool { return !slices.Contains(knownLanguages, tool) })
}

// knownLanguages are those that environments have interpreters for by default.
var knownLanguages = []string{"python", "javascript", "bash", "sh", "ruby", "perl"}

// rightsList has an object for each tool.
func rightsList(rights *cli.Rights) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	for _, name := range rights.Names {
		tool := unstructured.Unstructured{}
		tool.SetAPIVersion(cli.ReportVersion)
		tool.SetKind("Tool")
		tool.SetName(name)
		list.Items = append(list.Items, tool)
	}
	return list
}

func (r *toolsReport) write(c *cli.Cluster) error {
	d := cli.NewDescription(c.Out)
	text := r.Rights.Text()
	if !r.Rights.Complete && !r.Rights.AnyTool {
		text += ", and perhaps others: the cluster doesn't list all rights"
	}
	d.Section("", []cli.Field{{"Namespace", r.Namespace}, {"You may use", text}})
	if err := d.Flush(); err != nil {
		return err
	}
	if len(r.Environments) == 0 {
		fmt.Fprintf(c.ErrOut, "No environments are shown of namespace %s. Calls need one to run in.\n", r.Namespace)
		return nil
	}
	w := cli.NewTable(c.Out)
	fmt.Fprintln(w)
	w.Row("", "ENVIRONMENT", "DEFAULT", "POLICY", "ACCESS", "PROGRAMS", "SHELL", "CODE", "FILES")
	hidden := false
	for _, e := range r.Environments {
		languages, files := strings.Join(e.Languages, ", "), strings.Join(e.Files, ", ")
		if e.Access == unseen && e.Problem == "" {
			languages, files, hidden = unseen, unseen, true
		}
		w.Row("", e.Name, map[bool]string{true: "yes"}[e.Default], e.Policy, e.Access, e.Programs, e.Shell, languages, files)
	}
	err := w.Flush()
	for _, e := range r.Environments {
		if e.Problem != "" {
			fmt.Fprintf(c.ErrOut, "note: environment %s is not ready: %s\n", e.Name, terminal.SafeLine(e.Problem))
		}
	}
	if hidden {
		fmt.Fprintln(c.ErrOut, "note: ? stands for policies that you have no permission to read: bind the ClusterRole toolcall-policy-viewer with a ClusterRoleBinding, or ask for one call with kubectl toolcall check")
	}
	return err
}

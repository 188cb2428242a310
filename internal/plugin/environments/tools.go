package environments

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const toolsLong = `Show which tools you may use in the namespace, and what of that the policy of each environment allows.

The first lines are your own rights: the verb "use" on tools, as the API server lists them. A tool is a program, bash for
shell command lines, a language for code, or a file tool. Where the cluster can't list all rights, the tools of the policies
are asked for one by one. The file tools are file.read, which also lists and searches, and file.write, which also edits, moves and
deletes.

The table shows both together: a call needs the right to use its tool, unless the policy's ACCESS is Open, and the policy must
allow it. The operator says so, in reviews of calls that nobody creates: you need no permission to read policies. What a single
call may do, with its arguments, says "kubectl toolcall check".

--as shows what somebody else may use, if you may impersonate them: the rights are theirs, environments are read with yours.
The exit code is 0, also if you may use nothing, and 1 if the rights or the environments can't be read; without permission to list
environments, or to create calls, your rights are shown all the same.`

const toolsExample = `  kubectl toolcall tools
  kubectl toolcall tools -o json
  kubectl toolcall tools -o name`

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
	// Access is RBAC or Open, and "?" where no call can run or nobody may ask.
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
	return formats.Add(&cobra.Command{
		Use:     "tools",
		Short:   "Show what you may use in the namespace",
		Long:    toolsLong,
		Example: toolsExample,
		Args:    cli.RequireNothing,
		RunE: c.Connected(func(ctx context.Context, cluster *cli.Cluster, _ []string) error {
			return tools(ctx, cluster, formats)
		}),
	})
}

func tools(ctx context.Context, c *cli.Cluster, formats *cli.Formats) error {
	list := &v1alpha1.ExecutionEnvironmentList{}
	listErr := c.Asker.List(ctx, list, client.InNamespace(c.Namespace))
	if listErr != nil && !apierrors.IsForbidden(listErr) {
		return c.Explain("list", "executionenvironments", "environments", listErr)
	}
	probes, err := probeAll(ctx, c, list.Items)
	if err != nil {
		return err
	}
	rights, err := c.ToolRights(ctx, candidateTools(probes))
	if err != nil {
		return err
	}
	report := &toolsReport{Namespace: c.Namespace, Rights: rights, Environments: []environmentTools{}}
	for i := range list.Items {
		env := &list.Items[i]
		used, err := probes[env.Spec.PolicyName()].usable(ctx, rights)
		if err != nil {
			return err
		}
		used.Name, used.Default, used.Problem = env.Name, isDefault(env) != "", cmp.Or(used.Problem, NotReady(env))
		used.Policy = cmp.Or(env.Spec.PolicyName(), used.Policy)
		report.Environments = append(report.Environments, used)
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
	return c.Explain("list", "executionenvironments", "environments", listErr)
}

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
		fmt.Fprintln(c.ErrOut, "note: ? stands for what the operator would say in a review: the ClusterRole toolcall-user grants permission to ask, and to create calls")
	}
	return err
}

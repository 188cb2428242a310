package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"runtime"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
	"toolcall.dev/operator/internal/version"
)

const versionLong = `Print the versions of the plugin and of the operator.

The operator's version comes with each answer of the aggregated API for output, which everybody who may use the cluster can
ask. The exit code is 1 if it can't be found out.`

func newVersion(c *cli.CLI) *cobra.Command {
	clientOnly, formats := false, cli.NewFormats()
	command := &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of the plugin and of the operator",
		Long:    versionLong,
		Example: "  kubectl toolcall version\n  kubectl toolcall version --client\n  kubectl toolcall version -o json",
		Args:    cli.RequireNothing,
		RunE: func(command *cobra.Command, _ []string) error {
			return printVersions(command.Context(), c, clientOnly, formats)
		},
	}
	command.Flags().BoolVar(&clientOnly, "client", false, "print only the plugin's version, and ask no cluster")
	return formats.Add(command)
}

func printVersions(ctx context.Context, c *cli.CLI, clientOnly bool, formats *cli.Formats) error {
	var operator string
	var unknown error
	if !clientOnly {
		cluster, err := c.Connect()
		if err != nil {
			unknown = err
		} else if operator, err = operatorVersion(ctx, cluster); err != nil {
			unknown = fmt.Errorf("the operator's version is unknown: %w", err)
		}
	}
	platform, api, source := runtime.GOOS+"/"+runtime.GOARCH, v1alpha1.GroupVersion.String(), "says the API "+outputGroup
	if formats.IsObject() {
		report := map[string]any{"plugin": map[string]string{"version": version.String(), "platform": platform, "goVersion": runtime.Version(), "api": api}}
		if operator != "" {
			report["operator"] = map[string]string{"version": operator, "source": source}
		}
		return cmp.Or(formats.PrintReport(c.Out, "Versions", "versions", report), unknown)
	}
	fmt.Fprintf(c.Out, "kubectl-toolcall %s (%s, %s, API %s)\n", version.String(), platform, runtime.Version(), api)
	if operator != "" {
		fmt.Fprintf(c.Out, "operator %s (%s)\n", terminal.SafeLine(operator), source)
	}
	return unknown
}

// operatorVersion asks the aggregated API.
func operatorVersion(ctx context.Context, c *cli.Cluster) (string, error) {
	headers, err := get(ctx, c, "apis/"+outputGroup)
	if err != nil {
		return "", err
	}
	if headers.Get(headerVersion) == "" {
		return "", fmt.Errorf("the API %s doesn't say it: the operator is older than this plugin", outputGroup)
	}
	return headers.Get(headerVersion), nil
}

// get asks for a path of the API server, and returns the headers of the answer.
func get(ctx context.Context, c *cli.Cluster, path string) (http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Calls.Get().AbsPath(path).URL().String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the API server answers a request for /%s with %s", path, response.Status)
	}
	return response.Header, nil
}

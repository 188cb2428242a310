package doctor

import (
	"cmp"
	"context"
	"errors"
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

// versions are what version prints with -o.
type versions struct {
	Plugin   pluginVersion   `json:"plugin"`
	Operator *sourcedVersion `json:"operator,omitempty"`
}

type pluginVersion struct {
	Version   string `json:"version"`
	Platform  string `json:"platform"`
	GoVersion string `json:"goVersion"`
	API       string `json:"api"`
}

// sourcedVersion is a version, and where it was read.
type sourcedVersion struct {
	Version string `json:"version"`
	Source  string `json:"source"`
}

func newVersion(c *cli.CLI) *cobra.Command {
	clientOnly, formats := false, cli.NewFormats()
	command := &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of the plugin and of the operator",
		Long:    versionLong,
		Example: "  kubectl toolcall version\n  kubectl toolcall version --client\n  kubectl toolcall version -o json",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return printVersions(command.Context(), c, clientOnly, formats)
		},
	}
	command.Flags().BoolVar(&clientOnly, "client", false, "print only the plugin's version, and ask no cluster")
	formats.Add(command)
	return command
}

func printVersions(ctx context.Context, c *cli.CLI, clientOnly bool, formats *cli.Formats) error {
	all := versions{Plugin: pluginVersion{
		Version: version.String(), Platform: runtime.GOOS + "/" + runtime.GOARCH, GoVersion: runtime.Version(), API: v1alpha1.GroupVersion.String(),
	}}
	var unknown error
	if !clientOnly {
		cluster, err := c.Connect()
		if err != nil {
			unknown = err
		} else if all.Operator, err = operatorVersion(ctx, cluster); err != nil {
			unknown = fmt.Errorf("the operator's version is unknown: %w", err)
		}
	}
	if formats.IsObject() {
		return cmp.Or(formats.PrintReport(c.Out, "Versions", "versions", all), unknown)
	}
	p := all.Plugin
	fmt.Fprintf(c.Out, "kubectl-toolcall %s (%s, %s, API %s)\n", p.Version, p.Platform, p.GoVersion, p.API)
	if all.Operator != nil {
		fmt.Fprintf(c.Out, "operator %s (%s)\n", terminal.SafeLine(all.Operator.Version), terminal.SafeLine(all.Operator.Source))
	}
	return unknown
}

// operatorVersion asks the aggregated API, and for an operator that doesn't say its version there, its Deployment.
func operatorVersion(ctx context.Context, c *cli.Cluster) (*sourcedVersion, error) {
	headers, err := get(ctx, c, "apis/"+outputGroup)
	if said := headers.Get(headerVersion); said != "" {
		return &sourcedVersion{Version: said, Source: "says the API " + outputGroup}, nil
	}
	if err == nil {
		err = fmt.Errorf("the API %s doesn't say it: the operator is older than this plugin", outputGroup)
	}
	tag, tagErr := operatorTag(ctx, c)
	if tagErr != nil {
		return nil, errors.Join(err, tagErr)
	}
	return &sourcedVersion{Version: tag, Source: "tag of the operator's image"}, nil
}

// get asks for a path of the API server, and returns the headers of the answer.
func get(ctx context.Context, c *cli.Cluster, path string) (http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Base.JoinPath(path).String(), nil)
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

// Command release makes the files of a release out of a checkout: see the package dist. What it does goes to
// standard error.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"toolcall.dev/operator/hack/release/dist"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o := &dist.Options{Say: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&o.Source, "source", "", "folder of the checkout")
	flags.StringVar(&o.Out, "out", "", "folder to write; an earlier release in it is replaced")
	flags.StringVar(&o.Version, "version", "", "version, as in v1.2.3")
	flags.StringVar(&o.Registry, "registry", "", "where the images will be pulled from, as in registry.example.com/team")
	flags.StringVar(&o.Commit, "commit", "", "hash of the checkout's commit")
	flags.StringVar(&o.SourceURL, "source-url", "", "where the source is, for the images' labels")
	flags.StringVar(&o.DocsURL, "docs-url", "", "where the files of docs are published, for what programs say")
	flags.StringVar(&o.Licenses, "licenses", "", "SPDX expression of the licences, for the images' labels")
	architectures := flags.String("architectures", "amd64 arm64", "of the images")
	platforms := flags.String("plugin-platforms", "", "of kubectl's plugin, as in linux/amd64")
	clients := flags.String("clients", "", "languages whose client library is packed, as in python typescript")
	flags.StringVar(&o.DownloadURL, "download-url", "", "where the plugin's archives will be, for krew's manifest")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	o.Architectures, o.PluginPlatforms = strings.Fields(*architectures), strings.Fields(*platforms)
	o.Clients = strings.Fields(*clients)
	return dist.Make(ctx, o)
}

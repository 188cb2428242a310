// Command console serves a page that shows tool calls and sessions in a browser. It only reads, with the token that each user
// gives, and has no rights of its own.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"toolcall.dev/operator/internal/console"
	"toolcall.dev/operator/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if newCommand().ExecuteContext(ctx) != nil {
		stop()
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	options := &console.Options{}
	cmd := &cobra.Command{
		Use: "console", Short: "Show tool calls and sessions in a browser", Args: cobra.NoArgs, Version: version.String(), SilenceUsage: true,
	}
	cmd.SetErrPrefix("console:")
	options.Bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := options.Validate(); err != nil {
			return err
		}
		log := slog.NewTextHandler(os.Stderr, nil)
		// What reloads the certificate logs there.
		ctrl.SetLogger(logr.FromSlogHandler(log))
		return console.Serve(cmd.Context(), options, slog.New(log))
	}
	return cmd
}

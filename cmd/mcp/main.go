// Command mcp offers tool calls to agents over the Model Context Protocol. "mcp stdio" serves the agent that starts it,
// with the user's kubeconfig. "mcp http" serves many agents, each with its own credentials.
//
// Standard output carries only the protocol. Logs go to standard error.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"toolcall.dev/operator/internal/mcpserver"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/tools"
	"toolcall.dev/operator/internal/otlp"
	"toolcall.dev/operator/internal/version"
)

// shutdownTimeout is how long the last spans may take to leave.
const shutdownTimeout = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if newCommand().ExecuteContext(ctx) != nil {
		stop()
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "mcp", Short: "Offer tool calls to agents over the Model Context Protocol", Version: version.String(), SilenceUsage: true,
	}
	root.SetErrPrefix("mcp:")
	root.AddCommand(newStdioCommand(), newHTTPCommand())
	return root
}

func newStdioCommand() *cobra.Command {
	cluster, options, view := &identity.Cluster{}, mcpserver.Options{}, ""
	cmd := &cobra.Command{
		Use: "stdio", Short: "Serve one agent over standard input and output, with the credentials of the kubeconfig", Args: cobra.NoArgs,
	}
	cluster.Bind(cmd.Flags())
	cmd.Flags().IntVar(&options.MaxCalls, "max-calls", 64, "maximum number of running calls")
	mcpserver.BindMaxAnswer(cmd.Flags(), &options.MaxAnswer)
	cmd.Flags().StringVar(&view, "tools", string(tools.All), "which tools the agent sees: all, files or run")
	cmd.Flags().BoolVar(&options.SessionPerClient, "session-per-client", false,
		"run the calls of the agent in one session, which the first call starts and the end of the connection ends; calls that name a session or an environment are apart")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		options.View, options.MaxCallsPerUser = tools.View(view), options.MaxCalls
		switch {
		case options.MaxCalls < 1:
			return errors.New("--max-calls must be at least 1")
		case !slices.Contains(tools.Views(), options.View):
			return fmt.Errorf("--tools=%s: must be all, files or run", view)
		}
		if err := mcpserver.CheckMaxAnswer(options.MaxAnswer); err != nil {
			return err
		}
		conf, namespace, err := cluster.Load()
		if err != nil {
			return err
		}
		requester, err := identity.Local(conf, namespace)
		if err != nil {
			return err
		}
		options.Requester, options.Log = requester, newLog(slog.LevelWarn)
		return serve(cmd.Context(), options, func(s *mcpserver.Server) error { return s.Run(cmd.Context(), &mcp.StdioTransport{}) })
	}
	return cmd
}

func newHTTPCommand() *cobra.Command {
	cluster, options := &identity.Cluster{}, &mcpserver.HTTPOptions{}
	cmd := &cobra.Command{
		Use: "http", Short: "Serve agents over streamable HTTP, each for the user whose Kubernetes token is in its requests", Args: cobra.NoArgs,
	}
	cluster.Bind(cmd.Flags())
	cluster.BindServer(cmd.Flags())
	options.Bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := options.Validate(); err != nil {
			return err
		}
		if cluster.Server != "" && cluster.TokenFile == "" && !options.PassTokens {
			return errors.New("--server needs --token-file, with which the server acts for its callers, or --pass-tokens")
		}
		conf, namespace, err := cluster.Load()
		if err != nil {
			return err
		}
		log := newLog(slog.LevelInfo)
		limitMemory(log)
		return serve(cmd.Context(), mcpserver.Options{
			MaxCalls: options.MaxCalls, MaxCallsPerTenant: options.MaxCallsPerTenant, MaxCallsPerUser: options.MaxCallsPerUser,
			MaxAnswer: options.MaxAnswer, Log: log,
		}, func(s *mcpserver.Server) error {
			return mcpserver.Serve(cmd.Context(), s, mcpserver.Endpoint{HTTPOptions: *options, API: conf, Namespace: namespace})
		})
	}
	return cmd
}

// serve runs a server, and exports the spans of its requests where the environment names an OTLP endpoint.
func serve(ctx context.Context, options mcpserver.Options, run func(*mcpserver.Server) error) error {
	options.Version, options.Metrics = version.String(), mcpserver.NewMetrics()
	export, err := otlp.New(ctx, os.Getenv, otlp.Options{
		Service: "toolcall-mcp", Version: options.Version, Signals: []otlp.Signal{otlp.Traces},
		Lost: func(signal otlp.Signal, n int) { options.Metrics.CountLostTelemetry(string(signal), n) },
		Log:  func(err error) { options.Log.Warn("telemetry was not exported", "error", err.Error()) },
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		_ = export.Shutdown(ctx)
	}()
	options.Traces = export.Traces
	return run(mcpserver.NewServer(options))
}

func newLog(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

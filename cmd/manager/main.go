// Command manager is the operator: it checks tool calls, has them run, and writes what came of them.
package main

import (
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"toolcall.dev/operator/internal/operator"
	"toolcall.dev/operator/internal/version"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

func run() error {
	options := &operator.Options{}
	logging := zap.Options{}
	options.Bind(flag.CommandLine, os.Getenv)
	logging.BindFlags(flag.CommandLine)
	show := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *show {
		fmt.Println(version.Line("manager"))
		return nil
	}
	if err := options.Validate(); err != nil {
		return err
	}
	log := zap.New(zap.UseFlagOptions(&logging))
	ctrl.SetLogger(log)
	conf, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	return operator.Run(ctrl.SetupSignalHandler(), conf, options, log)
}

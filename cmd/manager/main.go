// Command manager is the operator: it checks tool calls, runs them and records their results.
package main

import (
	"flag"
	"fmt"
	"math"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
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
	limitMemory(log)
	conf, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	return operator.Run(ctrl.SetupSignalHandler(), conf, options, log)
}

// limitMemory has garbage collected more eagerly when the container's memory limit comes near: without that, a heap of
// half the limit can be the end of the process. GOMEMLIMIT says otherwise if it is set.
func limitMemory(log logr.Logger) {
	switch limit, err := memlimit.Set(); {
	case err != nil:
		log.Info("The container's memory limit isn't known: set GOMEMLIMIT to what the operator may use", "reason", err.Error())
	case limit < math.MaxInt64:
		log.Info("Keep to the memory limit", "GOMEMLIMIT", limit)
	}
}

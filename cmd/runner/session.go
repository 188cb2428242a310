package main

import (
	"os"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/runner/shim"
	"toolcall.dev/operator/internal/supervisor"
)

// beginSession returns what runs the calls of a session. Its shims end with this process.
func beginSession(executor supervisor.Executor, b *wire.Begin, support rules.Support) supervisor.ExecuteFunc {
	executor.Session = b
	shim.KeepSmall()
	supervisor.ReserveFileThreads()
	// Each shim has a stage of its own.
	runner.Discard()
	// Where the node has Landlock, no call can signal or trace another one's processes, or its shim.
	if apart := (&rules.Rules{}); support.Missing(apart) == "" {
		executor.Rules = apart
	}
	executor.Run = shim.NewPool(b.MaxConcurrentCalls, os.Stdout, os.Stderr).Run
	return executor.ExecuteCall
}

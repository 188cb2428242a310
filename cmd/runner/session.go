package main

import (
	"context"
	"os"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/runner/shim"
	"toolcall.dev/operator/internal/supervisor"
)

// lastResults is how long the calls of a session have to stop and to hand over their results when the pod has to end.
const lastResults = 15 * time.Second

// beginSession returns what runs the calls of a session. Its shims end with this process, and so does what can't be ended
// otherwise: terminate then has this process end, which ends whatever runs in the pod.
func beginSession(executor supervisor.Executor, b *wire.Begin, support rules.Support, terminate context.CancelCauseFunc) supervisor.ExecuteFunc {
	executor.Session = b
	shim.KeepSmall()
	supervisor.ReserveThreads(b.MaxConcurrentCalls)
	// Each shim has a stage of its own.
	runner.Discard()
	// Where the node has Landlock, no call can signal or trace another one's processes, or its shim.
	if apart := (&rules.Rules{Beside: true}); support.Missing(apart) == "" {
		executor.Rules = apart
	}
	executor.Run = shim.NewPool(b.MaxConcurrentCalls, func() {
		terminate(supervisor.Survivors)
		time.AfterFunc(lastResults, func() { os.Exit(1) })
	}).Run
	return executor.Execute
}

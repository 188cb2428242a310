package shim

import (
	"testing"
	"time"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// BenchmarkTrue is a command that does nothing, without a shim and in one, without rules and with two kinds of them.
func BenchmarkTrue(b *testing.B) {
	alone := func(c runner.Command) result.Outcome { return runner.Run(b.Context(), c) }
	benchTrue(b, "alone", alone)
	p := newBench(b, 1)
	benchTrue(b, "shim", func(c runner.Command) result.Outcome { return p.Run(b.Context(), c, func(time.Time) {}) })
}

func benchTrue(b *testing.B, where string, run func(runner.Command) result.Outcome) {
	for walls, r := range map[string]*rules.Rules{"free": nil, "scoped": {}, "writes": {WritePaths: []string{"/tmp"}}} {
		b.Run(where+"-"+walls, func(b *testing.B) {
			cmd := runner.Command{Argv: []string{"true"}, Env: []string{"PATH=" + testPath}, Dir: "/", Timeout: time.Minute, Rules: r}
			for b.Loop() {
				if o := run(cmd); o.Reason != result.Completed {
					b.Fatal(reason(o))
				}
			}
		})
	}
}

package shim

import (
	"net/netip"
	"testing"

	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/spec"
)

// BenchmarkTrue is a command that does nothing, without a shim and in one, without rules and with two kinds of them.
func BenchmarkTrue(b *testing.B) {
	alone := func(c runner.Command) result.Outcome { return runner.Run(b.Context(), c) }
	benchTrue(b, "alone", alone)
	p := newBench(b, 1)
	benchTrue(b, "shim", func(c runner.Command) result.Outcome { return p.Run(b.Context(), c) })
}

// openNetwork is what a policy that doesn't mention the network gives a call.
func openNetwork() *runner.Network {
	return &runner.Network{Network: spec.Network{Rules: network.Rules{Mode: network.Open, Surroundings: network.Surroundings{
		Node: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, APIServer: []netip.Addr{netip.MustParseAddr("192.0.2.2")},
		APIServerService: []netip.Addr{netip.MustParseAddr("198.51.100.1")}, Services: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/25")},
	}}}}
}

func benchTrue(b *testing.B, where string, run func(runner.Command) result.Outcome) {
	for walls, held := range map[string]runner.Command{
		"free": {}, "scoped": {Bounds: spec.Bounds{Rules: &rules.Rules{}}}, "writes": {Bounds: spec.Bounds{Rules: &rules.Rules{WritePaths: []string{"/tmp"}}}},
		"network": {Network: openNetwork()},
	} {
		b.Run(where+"-"+walls, func(b *testing.B) {
			cmd := held
			cmd.Argv, cmd.Env, cmd.Dir, cmd.TimeoutMilliseconds = []string{"true"}, []string{"PATH=" + testPath}, "/", 60_000
			for b.Loop() {
				if o := run(cmd); o.Reason != result.Completed {
					b.Fatal(reason(o))
				}
			}
		})
	}
}

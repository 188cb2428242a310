package supervisor_test

import (
	"net/netip"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
	"toolcall.dev/operator/internal/supervisor"
)

// restricted gives a call a network of what is listed.
func restricted(e *supervisor.Executor, script string) *wire.Assignment {
	a := shell(e, script)
	a.Network = &spec.Network{Rules: network.Rules{Mode: network.Listed, Surroundings: network.Surroundings{
		APIServer: []netip.Addr{netip.MustParseAddr("192.0.2.9")}, Services: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
	}}}
	return a
}

func TestTheRunnerAddsTheNodesAddresses(t *testing.T) {
	e := executor(t)
	e.Environ = append(e.Environ, wire.EnvHostIPs+"=192.0.2.5,2001:db8::5", "KUBERNETES_SERVICE_HOST=192.0.2.1")
	e.Pod.Gateways = []netip.Addr{netip.MustParseAddr("192.0.2.6")}
	const try = `for to in 192.0.2.5/80 2001:db8::5/80 192.0.2.6/80 192.0.2.1/443 192.0.2.9/443; do
		(exec 3<>/dev/tcp/$to) 2>/dev/null && echo reached; done; exit 3`
	a := restricted(e, try)
	a.Argv[0], a.Network.Rules.Mode = "bash", network.Open
	r := execute(t, e, a)
	if r.Outcome.Reason != result.NonZeroExit || len(r.Outcome.Stdout.Head) > 0 || len(r.Outcome.Denied) != 5 {
		t.Fatalf("%s: %s, stdout %q, denied %+v", r.Outcome.Reason, r.Outcome.Message, r.Outcome.Stdout.Head, r.Outcome.Denied)
	}
	if !strings.Contains(r.Outcome.Message, "192.0.2.9") {
		t.Errorf("the message names no address: %s", r.Outcome.Message)
	}
}

// The variables through which the runner learns of the node aren't the command's.
func TestTheCommandDoesNotSeeTheRunnersVariables(t *testing.T) {
	e := executor(t)
	e.Environ = append(e.Environ, wire.EnvHostIPs+"=192.0.2.5", "KUBERNETES_SERVICE_HOST=192.0.2.1")
	a := restricted(e, "env | grep -c HOST_IPS")
	a.Environment.Layers = []envresolve.Layer{}
	if r := execute(t, e, a); string(r.Outcome.Stdout.Head) != "0\n" {
		t.Errorf("got %q: %s", r.Outcome.Stdout.Head, r.Outcome.Message)
	}
}

// A pod is made for calls whose network is restricted, or for others. Neither runs a command of the other kind.
func TestACommandDoesNotRunInAPodOfTheOtherKind(t *testing.T) {
	e := executor(t)
	r := execute(t, e, restricted(e, "echo ran"))
	if r.Outcome.Started || r.Outcome.Reason != result.IsolationUnavailable || !strings.Contains(r.Outcome.Message, "end the session") {
		t.Errorf("restricted, in a pod that isn't: %s: %s", r.Outcome.Reason, r.Outcome.Message)
	}
	e.Environ = append(e.Environ, wire.EnvHostIPs+"=192.0.2.5", "KUBERNETES_SERVICE_HOST=192.0.2.1")
	r = execute(t, e, shell(e, "echo ran"))
	if r.Outcome.Started || r.Outcome.Reason != result.InvalidEnvironment || !strings.Contains(r.Outcome.Message, "End the session") {
		t.Errorf("unrestricted, in a pod that is: %s: %s", r.Outcome.Reason, r.Outcome.Message)
	}
	a := shell(e, "echo ran")
	a.DenyNetwork = true
	if r = execute(t, e, a); string(r.Outcome.Stdout.Head) != "ran\n" {
		t.Errorf("without a network: %s: %s", r.Outcome.Reason, r.Outcome.Message)
	}
}

// Network plugins can give pods other addresses than the nodes say: then nothing is known.
func TestAPodOutsideOfWhatNodesSayKnowsNoNetworks(t *testing.T) {
	e := executor(t)
	e.Environ = append(e.Environ, wire.EnvHostIPs+"=192.0.2.5", "KUBERNETES_SERVICE_HOST=192.0.2.1")
	a := restricted(e, "(exec 3<>/dev/tcp/172.31.255.9/80) 2>/dev/null; exit 3")
	a.Argv[0] = "bash"
	a.Network.Rules.Mode = network.Open
	around := &a.Network.Rules.Surroundings
	around.Pods = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	r := execute(t, e, a)
	if len(r.Outcome.Denied) != 1 || !strings.Contains(r.Outcome.Message, "taken for a network of the cluster") {
		t.Errorf("%s: %s, denied %+v", r.Outcome.Reason, r.Outcome.Message, r.Outcome.Denied)
	}
}

package sandbox

import (
	"testing"

	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/runner/sandbox/sockets"
)

// Signals every thread of its parent, from its first instruction on, and says how many it could have ended.
const signalsItsParent = `
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
	long parent = getppid(), own = getpid(), hits = 0;
	for (int i = 0; i < 200; i++)
		for (long thread = own - 1; thread > own - 40; thread--)
			if (!syscall(SYS_tgkill, parent, thread, 0)) hits++;
	printf("%ld\n", hits);
}`

func TestACommandReachesNoThreadOfItsSupervisor(t *testing.T) {
	if supportOnce().LandlockABI < rules.ABIScopes {
		t.Skip("this machine's Landlock doesn't restrict signals")
	}
	program := compile(t, "gcc", signalsItsParent, "-static")
	for name, network := range map[string]*sockets.Network{"restricted connections": {Connections: allow1()}, "a denied network": nil} {
		for range 40 {
			c := &command{network: network, denyNetwork: network == nil, argv: []string{program}}
			if out, _ := c.run(t); out != "0\n" {
				t.Fatalf("%s: it reached a thread %s times", name, out)
			}
		}
	}
}

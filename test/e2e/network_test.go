package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// store is a server in the cluster that every installation for these tests has.
const (
	store     = "toolcall-store.toolcall-system.svc.cluster.local"
	storePort = 9000
)

// listing has a policy's calls reach the store and nothing else, by code too.
func listing(p *v1alpha1.ExecutionPolicySpec) {
	p.Code = &v1alpha1.CodePolicy{DeniedModules: []string{}}
	p.Network = &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkListed, Allowed: []v1alpha1.AllowedHost{{Host: store, Ports: []int32{storePort}}}}
}

// deniedHosts are what a status says was refused, as host:port.
func deniedHosts(call *v1alpha1.ToolCall) []string {
	if call.Status.Network == nil {
		return nil
	}
	var list []string
	for _, d := range call.Status.Network.Denied {
		list = append(list, fmt.Sprintf("%s:%d", d.Host, d.Port))
	}
	slices.Sort(list)
	return list
}

func TestACallReachesWhatItsPolicyLists(t *testing.T) {
	everyWay(t, testACallReachesWhatItsPolicyLists)
}

func testACallReachesWhatItsPolicyLists(t *testing.T, w way) {
	sp := w.newSpace(t, listing)
	reach := fmt.Sprintf(`
import socket, os, errno
def reach(host, port):
    try:
        with socket.create_connection((host, port), 10): return "reached"
    except socket.gaierror: return "no such name"
    except OSError as e: return errno.errorcode.get(e.errno, str(e))
print(reach(%q, %d))
print(reach(%q, 80))
print(reach("kubernetes.default.svc.cluster.local", 443))
print(reach("example.com", 443))
print(reach("169.254.169.254", 80))
print(reach(os.environ.get("KUBERNETES_SERVICE_HOST", "10.96.0.1"), 443))
print(reach("203.0.113.7", 443))
`, store, storePort, store)
	for name, spec := range map[string]v1alpha1.ToolCallSpec{"code": code("python", reach)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := sp.run(t, spec)
			expect(t, call, succeeded("reached\nEACCES\nno such name\nno such name\nEACCES\nEACCES\nEACCES\n"))
			denied := strings.Join(deniedHosts(call), " ")
			for _, want := range []string{store + ":80", "kubernetes.default.svc.cluster.local:0", "example.com:0", "169.254.169.254:80", "203.0.113.7:443"} {
				if !strings.Contains(denied, want) {
					t.Errorf("%s isn't among the refused %s", want, denied)
				}
			}
			if call.Status.Network.Mode != v1alpha1.NetworkListed || call.Status.Isolation.Network != v1alpha1.HeldNetworkHeld {
				t.Errorf("network %+v, isolation %+v", call.Status.Network, call.Status.Isolation)
			}
		})
	}
}

func TestOrdinaryProgramsUseARestrictedNetwork(t *testing.T) {
	coldFirst(t, testOrdinaryProgramsUseARestrictedNetwork, waySession)
}

func testOrdinaryProgramsUseARestrictedNetwork(t *testing.T, w way) {
	sp := w.newSpace(t, listing)
	// A server that speaks no git answers, which is enough: git has connected.
	call := sp.run(t, shell(fmt.Sprintf(`git ls-remote http://%s:%d/x 2>&1 | grep -c -e 'not found' -e 'returned error' -e 'HTTP'; git ls-remote https://example.com/x 2>&1 | grep -o 'Could not resolve host: example.com'; (exec 3<>/dev/tcp/%s/%d) && echo connected; exit 0`, store, storePort, store, storePort)))
	expect(t, call, succeeded("1\nCould not resolve host: example.com\nconnected\n"))
}

func TestARefusedConnectionIsExplained(t *testing.T) {
	coldFirst(t, testARefusedConnectionIsExplained, waySession)
}

func testARefusedConnectionIsExplained(t *testing.T, w way) {
	sp := w.newSpace(t, listing)
	call := sp.run(t, shell("exec 3<>/dev/tcp/203.0.113.7/443"))
	if call.Status.Reason != v1alpha1.ReasonNonZeroExit {
		t.Errorf("it ended %s: %s", call.Status.Reason, call.Status.Message)
	}
	expectMessage(t, call, "203.0.113.7", "443", "network.allowed")
	// A model reads the output.
	if !strings.Contains(call.Status.Output, "203.0.113.7:443 isn't in the policy's network.allowed: add {host: 203.0.113.7, ports: [443]}.") {
		t.Errorf("the output is %q", call.Status.Output)
	}
}

// Open is open but for what every policy denies.
func TestAnOpenNetworkIsClosedToTheClusterAndTheNode(t *testing.T) {
	sessionFirst(t, testAnOpenNetworkIsClosedToTheClusterAndTheNode, wayCold)
}

func testAnOpenNetworkIsClosedToTheClusterAndTheNode(t *testing.T, w way) {
	sp := w.newSpace(t, func(p *v1alpha1.ExecutionPolicySpec) { p.Network = &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkOpen} })
	pod := sp.run(t, shell("true"))
	call := sp.run(t, shell(fmt.Sprintf(`for to in 169.254.169.254/80 10.96.0.1/443 %s/%d; do (exec 3<>/dev/tcp/$to) 2>/dev/null && echo "reached $to"; done; exit 0`, store, storePort)))
	expect(t, call, succeeded(""))
	if len(call.Status.Network.Denied) < 3 {
		t.Errorf("refused: %v (in pod %s)", deniedHosts(call), pod.Status.Pod)
	}
}

// What isn't held is said where people look.
func TestOpenUDPIsSaid(t *testing.T) {
	coldFirst(t, testOpenUDPIsSaid, waySession)
}

func testOpenUDPIsSaid(t *testing.T, w way) {
	sp := w.newSpace(t, codeOnlyGated, func(p *v1alpha1.ExecutionPolicySpec) {
		p.Network = &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkOpen, UDP: ptr.To(true)}
	})
	call := sp.run(t, code("python", "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('203.0.113.7', 9))\nprint('sent')"))
	expect(t, call, succeeded("sent\n"))
	if i := call.Status.Isolation; i == nil || i.Network != v1alpha1.HeldNetworkHeld || !i.OpenUDP {
		t.Errorf("the status says %+v", call.Status.Isolation)
	}
}

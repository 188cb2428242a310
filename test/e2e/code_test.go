package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// codeOnlyGated lets code use every module and ask for network, so that what stops it is the pod alone.
func codeOnlyGated(p *v1alpha1.ExecutionPolicySpec) {
	p.Code = &v1alpha1.CodePolicy{Languages: []string{}, DeniedModules: []string{}, NetworkAccess: ptr.To(true), Oversized: v1alpha1.OversizedScanPrefix}
}

func TestCodeRunsThroughItsInterpreter(t *testing.T) {
	sessionFirst(t, testCodeRunsThroughItsInterpreter, wayCold, wayWarm, wayImage)
}

func testCodeRunsThroughItsInterpreter(t *testing.T, w way) {
	sp := w.newSpace(t, codeOnlyGated)
	sp.newEnvironment(t, "own", func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Interpreters = map[string]v1alpha1.CommandPrefix{"shout": {"tr", "a-z", "A-Z", "--"}, "python": {"python3", "-I", "-X", "utf8"}, "awk": {"awk", "-f"}}
	})
	padding := strings.Repeat("# sixteen bytes\n", 32767)
	large := padding + "print('end')\n"
	large += strings.Repeat("#", 524288-len(large))
	withInput := code("python", "import sys\nprint(sys.stdin.read().upper(), end='')")
	withInput.Stdin = "from stdin\n"
	for name, test := range map[string]struct {
		spec v1alpha1.ToolCallSpec
		want outcome
	}{
		"Python":                              {code("Python", "print(6 * 7)"), succeeded("42\n")},
		"Python with stdin":                   {withInput, succeeded("FROM STDIN\n")},
		"Python sees no arguments":            {code("python", "import sys\nprint(len(sys.argv), sys.argv[1:])"), succeeded("1 []\n")},
		"Python of 512 KiB":                   {code("python", large), succeeded("end\n")},
		"Python that ends with a code":        {code("python", "raise SystemExit(7)"), exited(7, "", "")},
		"bash":                                {code("bash", "for i in a b; do echo $i $#; done"), succeeded("a 0\nb 0\n")},
		"sh":                                  {code("sh", "echo $((2+3))"), succeeded("5\n")},
		"an interpreter of the environment's": {in("own", code("awk", `BEGIN { print "awk" }`)), succeeded("awk\n")},
		"one in place of a built-in":          {in("own", code("python", "import sys\nprint(sys.flags.isolated)")), succeeded("1\n")},
		"nothing at all":                      {code("python", ""), succeeded("")},
		"one that the image doesn't have":     {code("ruby", "puts 1"), neverRan(v1alpha1.ReasonCommandNotFound)},
		"a language that nobody knows":        {code("cobol", "x"), neverRan(v1alpha1.ReasonInvalidEnvironment)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, sp.run(t, test.spec), test.want)
		})
	}
}

func TestTracebackOfPython(t *testing.T) {
	sessionFirst(t, testTracebackOfPython, wayCold)
}

func testTracebackOfPython(t *testing.T, w way) {
	sp := w.newSpace(t, codeOnlyGated)
	call := sp.run(t, code("python", "def f():\n    return 1 / 0\n\nf()\n"))
	if call.Status.Reason != v1alpha1.ReasonNonZeroExit || *call.Status.ExitCode != 1 {
		t.Errorf("it ended %s", call.Status.Reason)
	}
	for _, part := range []string{"Traceback (most recent call last):\n", "line 4, in <module>", "line 2, in f", "ZeroDivisionError: division by zero\n"} {
		if !strings.Contains(call.Status.Stderr, part) {
			t.Errorf("stderr lacks %q: %s", part, call.Status.Stderr)
		}
	}
}

// The source is nowhere on a command line, where other processes could read it and where it wouldn't fit.
func TestSourceIsNotOnTheCommandLine(t *testing.T) {
	coldFirst(t, testSourceIsNotOnTheCommandLine, waySession, wayWarm, wayImage)
}

func testSourceIsNotOnTheCommandLine(t *testing.T, w way) {
	sp := w.newSpace(t, codeOnlyGated)
	call := sp.run(t, code("python", "marker = 'sesame'\nprint(open('/proc/self/cmdline').read().count(marker))"))
	expect(t, call, succeeded("0\n"))
}

// apiAddress is an address that listens and that every pod can reach.
func (s *suite) apiAddress(t *testing.T) (host string, port int32) {
	t.Helper()
	service := &corev1.Service{}
	must(t, s.client.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "kubernetes"}, service))
	return service.Spec.ClusterIP, service.Spec.Ports[0].Port
}

// Code that isn't allowed network can't open an IP socket, in whatever way it tries.
func TestNetworkIsClosedToCode(t *testing.T) {
	sessionFirst(t, testNetworkIsClosedToCode, wayCold, wayWarm, wayImage)
}

func testNetworkIsClosedToCode(t *testing.T, w way) {
	sp := w.newSpace(t, codeOnlyGated)
	host, port := sp.apiAddress(t)
	const tryAll = `
import socket
for name in ('AF_INET', 'AF_INET6', 'AF_NETLINK', 'AF_PACKET', 'AF_VSOCK'):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            socket.socket(getattr(socket, name), kind)
            print(name, 'opened')
        except OSError as e:
            if e.errno != 13:
                print(name, e)
print('tried')
`
	for name, test := range map[string]struct {
		spec   v1alpha1.ToolCallSpec
		stdout string
		stderr string
	}{
		"Python's sockets of every kind": {code("python", tryAll), "tried\n", ""},
		"Python's connection": {
			code("python", fmt.Sprintf("import socket\nsocket.create_connection((%q, %d), 5)", host, port)), "", "PermissionError: [Errno 13] Permission denied",
		},
		"bash's /dev/tcp": {code("bash", fmt.Sprintf("exec 3<>/dev/tcp/%s/%d && echo open", host, port)), "", "Permission denied"},
		"a child program": {code("bash", fmt.Sprintf("curl -sS -k --max-time 5 https://%s:%d/healthz || echo refused", host, port)), "refused\n", "curl:"},
		"a grandchild of another language": {
			code("bash", fmt.Sprintf("env bash -c 'python3 -c \"import socket; socket.create_connection((\\\"%s\\\", %d), 5)\"' 2>&1 | tail -n 1", host, port)),
			"PermissionError: [Errno 13] Permission denied\n", "",
		},
		"socket(2) by ctypes": {
			code("python", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.socket(2, 1, 0), ctypes.get_errno())"), "-1 13\n", "",
		},
		"the bare system call": {
			code("python", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.syscall(41, 2, 1, 0), ctypes.get_errno())"), "-1 13\n", "",
		},
		"io_uring": {
			code("python", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.syscall(425, 1, ctypes.create_string_buffer(256)))"), "-1\n", "",
		},
		"but Unix sockets work": {
			code("python", "import socket\na, b = socket.socketpair()\na.send(b'pair ')\ns = socket.socket(socket.AF_UNIX)\ns.bind('/tmp/s')\ns.listen()\nc = socket.socket(socket.AF_UNIX)\nc.connect('/tmp/s')\ns.accept()[0].send(b'path')\nprint((b.recv(9) + c.recv(9)).decode())"),
			"pair path\n", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := sp.run(t, test.spec)
			if call.Status.Stdout != test.stdout || !strings.Contains(call.Status.Stderr, test.stderr) || (test.stderr == "" && call.Status.Stderr != "") {
				t.Errorf("stdout %q, stderr %q, %s: %s", call.Status.Stdout, call.Status.Stderr, call.Status.Reason, call.Status.Message)
			}
		})
	}
}

func TestNetworkIsOpenToCodeThatMayAskForIt(t *testing.T) {
	sessionFirst(t, testNetworkIsOpenToCodeThatMayAskForIt, wayCold, wayWarm, wayImage)
}

func testNetworkIsOpenToCodeThatMayAskForIt(t *testing.T, w way) {
	sp := w.newSpace(t, codeOnlyGated, func(p *v1alpha1.ExecutionPolicySpec) {
		p.Network = &v1alpha1.NetworkRules{AllowInCluster: ptr.To(true)}
	})
	spec := code("python", fmt.Sprintf("import socket\nsocket.create_connection((%q, %d), 10)\nprint('connected')", store, storePort))
	spec.Code.NetworkAccess = ptr.To(true)
	expect(t, sp.run(t, spec), succeeded("connected\n"))
	host, port := sp.apiAddress(t)
	spec.Code.Source = fmt.Sprintf("import socket\ntry:\n    socket.create_connection((%q, %d), 10)\nexcept PermissionError:\n    print('refused')", host, port)
	expect(t, sp.run(t, spec), succeeded("refused\n"))
}

// Mode Unrestricted leaves a call what its pod has.
func TestAnUnrestrictedNetworkIsThePods(t *testing.T) {
	coldFirst(t, testAnUnrestrictedNetworkIsThePods, waySession)
}

func testAnUnrestrictedNetworkIsThePods(t *testing.T, w way) {
	sp := w.newSpace(t, codeOnlyGated, func(p *v1alpha1.ExecutionPolicySpec) {
		p.Network = &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkUnrestricted}
	})
	spec := code("python", "import socket\nsocket.create_connection(('kubernetes.default.svc.cluster.local', 443), 10)\nprint('connected')")
	call := sp.run(t, spec)
	expect(t, call, succeeded("connected\n"))
	if n := call.Status.Network; n == nil || n.Mode != v1alpha1.NetworkUnrestricted || call.Status.Isolation == nil || call.Status.Isolation.Network != v1alpha1.HeldNetworkPod {
		t.Errorf("the status says %+v, %+v", call.Status.Network, call.Status.Isolation)
	}
}

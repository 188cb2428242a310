package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/testing/built"
)

// outsideNetworks are parts of TEST-NET-2, which no machine uses. Each run of the tests takes one.
var outsideNetworks = netip.MustParsePrefix("198.51.100.0/24")

// outside is a network beyond the node, where a test has servers: a network namespace of the test's own process with a link to
// the node. The namespace has no name and no process but this one, so that it goes with the process, whatever ends it, and the
// kernel removes the link's two ends and the node's addresses and routes with it.
type outside struct {
	suite *suite
	// link is the interface at the node.
	link string
	// node is the node's address there, and server the servers'.
	node, server netip.Addr
	work         chan func()
}

// newOutside makes the network, and removes it at the end of the test.
func newOutside(t *testing.T) *outside {
	t.Helper()
	s := cluster(t)
	if os.Geteuid() != 0 {
		t.Skip("servers beyond the node need a network namespace: run this test as root")
	}
	o := &outside{suite: s, link: "tc-" + s.id, work: make(chan func())}
	o.choose(t)
	entered := make(chan error)
	go o.live(entered)
	must(t, <-entered)
	t.Cleanup(func() { close(o.work) })
	o.connect(t)
	return o
}

// choose takes a part of the networks that the node has no route to.
func (o *outside) choose(t *testing.T) {
	t.Helper()
	routes := o.suite.onNode(t, "ip", "-4", "route", "show")
	addr := outsideNetworks.Addr()
	for outsideNetworks.Contains(addr) {
		if !strings.Contains(routes, addr.String()+"/28") {
			o.node = addr.Next()
			o.server = o.node.Next()
			return
		}
		for range 16 {
			addr = addr.Next()
		}
	}
	t.Fatalf("all of %s is taken on the node: remove interfaces called tc-*", outsideNetworks)
}

// live is the one thread in the namespace. It ends with its goroutine, as it stays locked.
func (o *outside) live(entered chan<- error) {
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_NEWNET)
	entered <- err
	if err != nil {
		return
	}
	for f := range o.work {
		f()
	}
}

// inside runs a function in the namespace. Sockets that it makes belong there for good.
func (o *outside) inside(f func() error) error {
	done := make(chan error)
	o.work <- func() { done <- f() }
	return <-done
}

// connect makes the link. The servers' end has the metadata address too: a cloud would answer there.
func (o *outside) connect(t *testing.T) {
	t.Helper()
	o.ip(t, "link set lo up")
	o.ip(t, "link add out type veth peer name "+o.link+" netns "+nodeNamespace(t))
	t.Cleanup(func() { o.remove(t) })
	o.ip(t, fmt.Sprintf("address add %s/28 dev out", o.server))
	o.ip(t, "address add "+metadataAddress+"/32 dev lo")
	o.ip(t, "link set out up")
	o.suite.onNode(t, "ip", "address", "add", o.node.String()+"/28", "dev", o.link)
	o.suite.onNode(t, "ip", "link", "set", o.link, "up")
	o.suite.onNode(t, "ip", "route", "replace", metadataAddress+"/32", "via", o.server.String())
	o.ip(t, "route add default via "+o.node.String())
}

// ip configures the namespace.
func (o *outside) ip(t *testing.T, args string) {
	t.Helper()
	must(t, o.inside(func() error { return run(t.Context(), append([]string{"ip"}, strings.Fields(args)...)...) }))
}

// remove deletes the link, with both of its ends.
func (o *outside) remove(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := runOnNode(ctx, "ip", "link", "delete", o.link); err != nil {
		t.Errorf("remove the link: %v", err)
	}
}

// listen opens a port of an address of the namespace until the end of the test.
func (o *outside) listen(t *testing.T, addr string, port uint16) net.Listener {
	t.Helper()
	var l net.Listener
	must(t, o.inside(func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf("%s:%d", addr, port))
		return err
	}))
	t.Cleanup(func() { l.Close() })
	return l
}

// listenDatagrams is listen by UDP.
func (o *outside) listenDatagrams(t *testing.T, port uint16) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	must(t, o.inside(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(o.server, port)))
		return err
	}))
	t.Cleanup(func() { c.Close() })
	return c
}

var firstProcess = regexp.MustCompile(`first process (\d+)`)

// nodeNamespace is the node's network namespace, as a path of this machine.
func nodeNamespace(t *testing.T) string {
	t.Helper()
	program, err := built.Helper("cluster")
	must(t, err)
	out, err := exec.CommandContext(t.Context(), program, "status").CombinedOutput()
	m := firstProcess.FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("`cluster status` doesn't name the node's first process: %v\n%s", err, out)
	}
	return "/proc/" + string(m[1]) + "/ns/net"
}

// runOnNode is onNode for the end of a test, whose context is over.
func runOnNode(ctx context.Context, command ...string) error {
	program, err := built.Helper("cluster")
	if err != nil {
		return err
	}
	return run(ctx, append([]string{program, "exec", "--"}, command...)...)
}

func run(ctx context.Context, command ...string) error {
	if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("run %q: %w\n%s", command, err, out)
	}
	return nil
}

package resolver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// insideVariable says that the test binary runs in namespaces of its own, with /etc/resolv.conf bound over.
const insideVariable = "RESOLVER_TEST_INSIDE"

// clientTimeout ends a client that hangs. One that fails at once needs a fraction of it.
const clientTimeout = 30 * time.Second

// TestRealClients has the programs of the machine look names up, by streams and by datagrams. The mount and the network of
// the test are its own, and end with it.
func TestRealClients(t *testing.T) {
	if testing.Short() {
		t.Skip("programs that are slow to start are tried")
	}
	if os.Getuid() != 0 {
		t.Skip("only root can have a mount and a network of its own here")
	}
	for _, options := range []string{"ndots:5 use-vc", "ndots:5"} {
		t.Run(options, func(t *testing.T) {
			dir := t.TempDir()
			conf := filepath.Join(dir, "resolv.conf")
			text := "nameserver 127.0.0.1\nsearch ns.svc.cluster.local svc.cluster.local cluster.local\noptions " + options + "\n"
			if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestInsideRealClients$", "-test.v")
			cmd.Env = append(os.Environ(), insideVariable+"="+conf)
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
			out, err := cmd.CombinedOutput()
			if errors.Is(err, unix.EPERM) {
				t.Skip("namespaces of its own aren't permitted here")
			}
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestInsideRealClients(t *testing.T) {
	conf := os.Getenv(insideVariable)
	if conf == "" {
		t.Skip("TestRealClients runs it")
	}
	if err := unix.Mount(conf, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	loopbackUp(t)
	s := newNameserver(t, zone(world))
	r := configured(t, listing("packages.example.com", "alias.example.com", "gone.example.com"), func(c *Config) {
		c.Nameservers = []netip.AddrPort{s.addr}
		c.Search = []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local"}
	})
	listen(t, r)
	for _, c := range clients(t) {
		t.Run(c.name, func(t *testing.T) {
			for _, name := range c.choose("packages.example.com", "alias.example.com") {
				out, took, err := c.run(name)
				t.Logf("%s after %v: %.80q, %v", name, took, out, err)
				if err != nil || !strings.Contains(out, world[last(name)][0]) {
					t.Errorf("%s isn't found", name)
				}
			}
			for _, name := range c.choose("private.example.org", "gone.example.com", "private") {
				out, took, err := c.run(name)
				t.Logf("%s after %v: %.80q, %v", name, took, out, err)
				if err == nil || strings.Contains(out, "198.51.100.99") || strings.Contains(out, "again") || strings.Contains(out, "Temporary") {
					t.Errorf("%s isn't told as a name that doesn't exist", name)
				}
			}
		})
	}
	for _, q := range s.queries() {
		if !slices.Contains([]string{"packages.example.com.", "alias.example.com.", "gone.example.com."}, q.name) {
			t.Errorf("the nameserver was asked for %s", q.name)
		}
	}
	if list, more := r.Denials(); len(list) != 2 || list[0].Host != "private.example.org" || list[1].Host != "private" || more != 0 {
		t.Errorf("refused: %+v, %d", list, more)
	}
}

// last is where the aliases of a name end.
func last(name string) string {
	name += "."
	for len(world[name]) == 1 {
		if _, err := netip.ParseAddr(world[name][0]); err == nil {
			break
		}
		name = world[name][0]
	}
	return name
}

func loopbackUp(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		t.Fatal(err)
	}
}

// listen brings the resolver what the gate brings it otherwise.
func listen(t *testing.T, r *Resolver) {
	t.Helper()
	streams, err := net.Listen("tcp", "127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	datagrams, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 53})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go r.Serve(streams)
	go func() {
		defer close(ended)
		buffer := make([]byte, 65536)
		for {
			n, from, err := datagrams.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			r.Datagram(bytes.Clone(buffer[:n]), func(msg []byte) { _, _ = datagrams.WriteToUDPAddrPort(msg, from) })
		}
	}()
	t.Cleanup(func() {
		datagrams.Close()
		<-ended
	})
}

// clientProgram looks a name up and prints its addresses, or fails.
type clientProgram struct {
	name string
	run  func(name string) (out string, took time.Duration, err error)
	// slow says that starting it takes long.
	slow bool
}

// choose returns what a client is to look up: only the first name if it is slow.
func (c *clientProgram) choose(names ...string) []string {
	if c.slow {
		return names[:1]
	}
	return names
}

const (
	pythonClient = `import socket, sys
print([a[4][0] for a in socket.getaddrinfo(sys.argv[1], 443)])`
	nodeLookup  = `require("dns").lookup(process.argv[1], {all: true}, (err, a) => { console.log(JSON.stringify(err || a)); process.exit(err ? 1 : 0) })`
	nodeResolve = `require("dns").resolve4(process.argv[1], (err, a) => { console.log(JSON.stringify(err || a)); process.exit(err ? 1 : 0) })`
	javaClient  = `public class Client { public static void main(String[] a) throws Exception {
	System.out.println(java.util.Arrays.toString(java.net.InetAddress.getAllByName(a[0]))); } }`
	cClient = `#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
int main(int argc, char **argv) {
	struct addrinfo hints, *list = 0;
	char text[64];
	memset(&hints, 0, sizeof hints);
	hints.ai_socktype = SOCK_STREAM;
	int code = getaddrinfo(argv[1], "443", &hints, &list);
	if (code) { puts(gai_strerror(code)); return 1; }
	for (; list; list = list->ai_next) {
		void *addr = list->ai_family == AF_INET ? (void *)&((struct sockaddr_in *)list->ai_addr)->sin_addr
			: (void *)&((struct sockaddr_in6 *)list->ai_addr)->sin6_addr;
		puts(inet_ntop(list->ai_family, addr, text, sizeof text));
	}
	return 0;
}`
)

// clients are those that are there.
func clients(t *testing.T) []clientProgram {
	dir := t.TempDir()
	source, java := filepath.Join(dir, "client.c"), filepath.Join(dir, "Client.java")
	for path, text := range map[string]string{source: cClient, java: javaClient} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	type candidate struct {
		name    string
		compile []string
		run     []string
		slow    bool
	}
	candidates := []candidate{
		{"getent", nil, []string{"getent", "ahosts"}, false},
		{"glibc", []string{"gcc", "-o", dir + "/glibc", source}, []string{dir + "/glibc"}, false},
		{"musl", []string{"musl-gcc", "-static", "-o", dir + "/musl", source}, []string{dir + "/musl"}, false},
		{"python3", nil, []string{"python3", "-c", pythonClient}, true},
		{"node, by getaddrinfo", nil, []string{"node", "-e", nodeLookup, "--"}, true},
		{"node, by itself", nil, []string{"node", "-e", nodeResolve, "--"}, true},
	}
	missing := t.Logf
	if os.Getenv("TOOLCALL_FULL") == "1" {
		missing = t.Errorf
		candidates = append(candidates, candidate{"java", []string{"javac", "-d", dir, java}, []string{"java", "-Xshare:auto", "-cp", dir, "Client"}, true})
	} else {
		t.Log("java isn't tried: make test-full runs it")
	}
	list := []clientProgram{{name: "Go", run: goLookup}}
	for _, c := range candidates {
		if c.compile != nil {
			if out, err := exec.CommandContext(t.Context(), c.compile[0], c.compile[1:]...).CombinedOutput(); err != nil {
				missing("%s isn't tried: %v: %s", c.name, err, out)
				continue
			}
		} else if _, err := exec.LookPath(c.run[0]); err != nil {
			missing("%s isn't tried: %v", c.name, err)
			continue
		}
		list = append(list, clientProgram{c.name, program(t, c.run), c.slow})
	}
	return list
}

func program(t *testing.T, argv []string) func(string) (string, time.Duration, error) {
	return func(name string) (string, time.Duration, error) {
		ctx, cancel := context.WithTimeout(t.Context(), clientTimeout)
		defer cancel()
		start := time.Now()
		out, err := exec.CommandContext(ctx, argv[0], append(argv[1:], name)...).CombinedOutput()
		if ctx.Err() != nil {
			t.Errorf("%s hangs", name)
		}
		return string(bytes.TrimSpace(out)), time.Since(start), err
	}
}

// goLookup reads the resolv.conf of the namespace.
func goLookup(name string) (string, time.Duration, error) {
	start := time.Now()
	addrs, err := (&net.Resolver{PreferGo: true}).LookupHost(context.Background(), name)
	var dnsError *net.DNSError
	if err != nil && (!errors.As(err, &dnsError) || !dnsError.IsNotFound) {
		return "Temporary", time.Since(start), err
	}
	return fmt.Sprint(addrs), time.Since(start), err
}

// What a client isn't told by the code, dig shows.
func TestDigReadsTheExplanation(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("dig"); err != nil {
		t.Skip(err)
	}
	s := newNameserver(t, zone(world))
	r := newResolver(t, listing("packages.example.com"), s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		r.Serve(l)
		close(ended)
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	for name, want := range map[string]string{
		"packages.example.com": "198.51.100.7",
		"private.example.org":  "EDE: 15 (Blocked): (private.example.org isn't in the policy's network.allowed: add {host: private.example.org})",
	} {
		out, err := exec.CommandContext(t.Context(), "dig", "@127.0.0.1", "-p", port, "+tcp", name, dnsmessage.TypeA.String()[4:]).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

package e2e

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/full"
)

// metadataAddress is where clouds tell an instance about itself.
const metadataAddress = "169.254.169.254"

// sites are the web servers of a test: one host by HTTP and TLS.
type sites struct {
	// host is the servers' name; the certificate that authority signed is valid for it.
	host, authority string
	// connections counts those to either.
	connections atomic.Int64
}

// serveSites starts them at the servers' address.
func (o *outside) serveSites(t *testing.T) *sites {
	t.Helper()
	s := &sites{host: "sites-" + o.suite.id + ".example.com"}
	handler := http.NewServeMux()
	handler.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello by %s\n", r.Host) })
	handler.HandleFunc("GET /slow", slowly)
	handler.HandleFunc("GET /zeros/{bytes}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseInt(r.PathValue("bytes"), 10, 64)
		_, _ = io.CopyN(w, zeros{}, n)
	})
	handler.HandleFunc("PUT /count", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, n, err)
	})
	handler.HandleFunc("GET /npm/greeting", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"name": "greeting", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "greeting", "version": "1.0.0", "dist": {"tarball": "%s://%s/files/greeting.tgz"}}}}`, scheme(r), r.Host)
	})
	handler.Handle("GET /files/", http.StripPrefix("/files/", http.FileServer(http.Dir(newSources(t)))))
	for port, start := range map[uint16]func(*httptest.Server){80: (*httptest.Server).Start, 443: (*httptest.Server).StartTLS} {
		server := httptest.NewUnstartedServer(handler)
		server.Listener.Close()
		server.Listener = counting{o.listen(t, o.server.String(), port), &s.connections}
		server.EnableHTTP2 = true
		start(server)
		t.Cleanup(server.Close)
		if c := server.Certificate(); c != nil {
			s.authority = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
		}
	}
	return s
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// slowly says nothing for longer than any lookup takes, and then a line at a time.
func slowly(w http.ResponseWriter, _ *http.Request) {
	for i := range 4 {
		time.Sleep(2 * time.Second)
		fmt.Fprintln(w, "line", i)
		_ = http.NewResponseController(w).Flush()
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// counting counts the connections that a listener accepts.
type counting struct {
	net.Listener
	accepted *atomic.Int64
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.accepted.Add(1)
	}
	return conn, err
}

// newSources makes a folder with a git repository, an index with a package of Python, and a package of Node.js.
func newSources(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := `
git init --quiet --initial-branch=main work
printf 'from greeting import greet\nprint(greet("world"))\n' > work/main.py
git -C work add main.py
git -C work -c user.name=e2e -c user.email=e2e@example.com commit --quiet --message first
git clone --quiet --bare work project.git
git -C project.git update-server-info
mkdir package
echo '{"name": "greeting", "version": "1.0.0", "main": "index.js"}' > package/package.json
echo 'module.exports = name => "hello " + name' > package/index.js
tar -czf greeting.tgz package
mkdir -p simple/greeting
python3 - <<'PY'
import zipfile
info = "greeting-1.0.dist-info/"
with zipfile.ZipFile("simple/greeting/greeting-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("greeting.py", 'def greet(name):\n    return f"hello {name}"\n')
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", "".join(name + ",,\n" for name in [*wheel.namelist(), info + "RECORD"]))
PY`
	must(t, os.WriteFile(filepath.Join(dir, "make.sh"), []byte("set -e\ncd \"$(dirname \"$0\")\"\n"+script), 0o600))
	must(t, run(t.Context(), "bash", filepath.Join(dir, "make.sh")))
	return dir
}

// listingHost has a policy's calls reach one host.
func listingHost(host string, ports ...int32) func(*v1alpha1.ExecutionPolicySpec) {
	return func(p *v1alpha1.ExecutionPolicySpec) {
		p.Network = &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkListed, Allowed: []v1alpha1.AllowedHost{{Host: host, Ports: ports}}}
	}
}

// Programs that know nothing of the policy reach a listed host beyond the cluster, as they would without one.
func TestProgramsReachAListedHost(t *testing.T) {
	full.Only(t, "the image of network clients needs Java and a C compiler")
	o := newOutside(t)
	s := o.serveSites(t)
	o.serveNames(t, map[string][]answer{s.host: {{o.server.String()}}})
	sp := newSpace(t, listingHost(s.host, 80, 443))
	loadClients(t)
	sp.newEnvironment(t, "clients", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Image = clientsImage })
	t.Run("programs", func(t *testing.T) {
		for program, test := range clients("hello by " + s.host + "\n") {
			t.Run(program, func(t *testing.T) {
				t.Parallel()
				spec := in("clients", within(240, shell(`cd "$(mktemp -d)"; printf %s "$AUTHORITY" > ca.pem; `+test.command)))
				spec.Env = []v1alpha1.CallEnvVar{{Name: "HOST", Value: s.host}, {Name: "AUTHORITY", Value: s.authority}, {Name: "FETCH", Value: nodeFetch}, {Name: "JAVA", Value: javaFetch}}
				call := sp.run(t, spec)
				expect(t, call, succeeded(test.want))
				if denied := deniedHosts(call); len(denied) > 0 {
					t.Errorf("refused: %v", denied)
				}
			})
		}
	})
}

// An address is open to a call that looked it up by a listed name, and to no other call.
func TestAnAddressIsOpenByItsName(t *testing.T) {
	o := newOutside(t)
	s := o.serveSites(t)
	o.serveNames(t, map[string][]answer{s.host: {{o.server.String()}}})
	sp := newSpace(t, listingHost(s.host, 80))
	curl := fmt.Sprintf("curl -s -o /dev/null -w '%%{http_code} ' http://%s/hello; ", o.server)
	call := sp.run(t, shell(curl+fmt.Sprintf("curl -s http://%s/hello; ", s.host)+curl+"true"))
	expect(t, call, succeeded("000 hello by "+s.host+"\n200 "))
	if denied := fmt.Sprint(deniedHosts(call)); denied != fmt.Sprintf("[%s:80]", o.server) {
		t.Errorf("refused: %s", denied)
	}
	before := s.connections.Load()
	expect(t, sp.run(t, shell(curl+"true")), succeeded("000 "))
	if s.connections.Load() != before {
		t.Error("another call reached the address")
	}
}

// rebind looks a name up again and again, connects to every address that it is given and to those of the list, and prints where
// it came to.
const rebind = `
import socket, sys
name, ports, traps = sys.argv[1], [int(p) for p in sys.argv[2].split(",")], sys.argv[3:]
reached, given, silent = set(), set(), set()
def reach(addr, port):
    if (addr, port) in silent:
        return False
    with socket.socket() as s:
        s.settimeout(3)
        try:
            s.connect((addr, port))
            return True
        except TimeoutError:
            silent.add((addr, port))
        except OSError:
            pass
    return False
for i in range(40):
    try:
        found = {a[4][0] for a in socket.getaddrinfo(name, 0, socket.AF_INET, socket.SOCK_STREAM)}
    except socket.gaierror:
        found = set()
    given |= found
    reached |= {f"{addr}:{port}" for addr in found for port in ports if reach(addr, port)}
    trap = traps[i % len(traps)].split(":")
    if reach(trap[0], int(trap[1])):
        reached.add(":".join(trap))
print("given", *sorted(given))
print("reached", *sorted(reached))
`

// A listed name whose answers change to addresses that every policy denies leads nowhere but to its own server, whatever a call
// looks up or connects to. An unrestricted call comes to each, so they are there.
func TestAListedNameThatLeadsElsewhere(t *testing.T) {
	o := newOutside(t)
	var here, metadata atomic.Int64
	serveNothing(t, counting{o.listen(t, o.server.String(), 80), &here})
	serveNothing(t, counting{o.listen(t, metadataAddress, 80), &metadata})
	traps := append(o.nodeTraps(t), metadataAddress+":80")
	name, alias := "rebinds-"+o.suite.id+".example.com", "leads-"+o.suite.id+".example.com"
	good := o.server.String()
	var answers []answer
	for _, trap := range traps {
		addr, _, _ := strings.Cut(trap, ":")
		answers = append(answers, answer{good}, answer{addr}, answer{addr, good})
	}
	aliases := []answer{{good}, {"kubernetes.default.svc.cluster.local"}}
	names := o.serveNames(t, map[string][]answer{name: answers, alias: aliases})
	ports := []int32{80, 443, 6443, 10250}
	attempt := func(name string) v1alpha1.ToolCallSpec {
		args := append([]string{"-c", rebind, name, "80,443,6443,10250"}, traps...)
		return within(240, structured("python3", args...))
	}
	control := newSpace(t, metacharactersAllowed, func(p *v1alpha1.ExecutionPolicySpec) {
		p.Network = &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkUnrestricted}
	}).run(t, attempt(name))
	for _, trap := range traps {
		if !strings.Contains(control.Status.Stdout, " "+trap) {
			t.Errorf("an unrestricted call doesn't reach %s, so that the test would prove nothing: %s", trap, control.Status.Output)
		}
	}
	before := metadata.Load()
	if before == 0 || names.count(name) < 40 {
		t.Fatalf("the metadata address was reached %d times, and the name was asked for %d times", before, names.count(name))
	}
	for _, host := range []string{name, alias} {
		sp := newSpace(t, metacharactersAllowed, listingHost(host, ports...))
		call := sp.run(t, attempt(host))
		expect(t, call, succeeded(fmt.Sprintf("given %s\nreached %s:80\n", good, good)))
		if denied := strings.Join(deniedHosts(call), " "); !strings.Contains(denied, metadataAddress+":80") {
			t.Errorf("the metadata address isn't among the refused %s", denied)
		}
	}
	if now := metadata.Load(); now != before {
		t.Errorf("the metadata address was reached %d times more", now-before)
	}
}

// serveNothing accepts connections, and ends them.
func serveNothing(t *testing.T, l net.Listener) {
	t.Helper()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
}

// nodeTraps are what a pod can reach and a call must not: the API server by each of its addresses, and the kubelet by each of the
// node's.
func (o *outside) nodeTraps(t *testing.T) []string {
	t.Helper()
	service := &corev1.Service{}
	must(t, o.suite.client.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "kubernetes"}, service))
	traps := []string{service.Spec.ClusterIP + ":443"}
	for _, m := range inetAddress.FindAllStringSubmatch(o.suite.onNode(t, "ip", "-4", "-o", "address"), -1) {
		addr := netip.MustParseAddr(m[1])
		kubelet := m[1] + ":10250"
		// Nobody tells the operator of the address of this test's own link.
		if !addr.IsLoopback() && !outsideNetworks.Contains(addr) && !slices.Contains(traps, kubelet) {
			traps = append(traps, m[1]+":6443", kubelet)
		}
	}
	return traps
}

var inetAddress = regexp.MustCompile(`inet ([0-9.]+)/`)

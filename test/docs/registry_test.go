package docs

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The pages push to a registry, and the cluster pulls from it. Here that is a real one, on the local node. Clients take
// one without a certificate only from a loopback address: so it is the node's own, and the same port of this machine's
// leads to it.

// inPages is the registry's name in the pages.
const inPages = "registry.example.com/team"

// standIns are what is put in the place of a page's words, in the order old, new.
func standIns(registry string) []string {
	return []string{inPages, registry + "/team", " dist/", " $DIST/"}
}

// newRegistry runs one, and gives its address. Afterwards nothing on the node is named after it.
func newRegistry(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	address := listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	serveOnNode(t, helper(t, "images"), "registry", "--listen", "0.0.0.0:"+port)
	node := kubectl("get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`).must(t)
	go forward(listener, net.JoinHostPort(node, port))
	t.Cleanup(func() { forgetImages(t, address) })
	return address
}

// serveOnNode runs a server in the node's namespaces until the end of the test, and returns once it has said where it listens.
func serveOnNode(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(helper(t, "cluster"), append([]string{"exec", "--"}, args...)...)
	cmd.Stderr = os.Stderr
	// What runs in the node gets the signal too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%v on the node said %q and ended: %v", args, line, err)
	}
}

// forward takes each connection to another address, until the listener is closed.
func forward(listener net.Listener, to string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			peer, err := net.DialTimeout("tcp", to, 10*time.Second)
			if err != nil {
				return
			}
			defer peer.Close()
			go func() {
				_, _ = io.Copy(peer, from)
				_ = peer.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(from, peer)
		}()
	}
}

// forgetImages takes away the node's names for what it pulled.
func forgetImages(t *testing.T, registry string) {
	ctr := []string{"ctr", "--namespace=k8s.io", "images"}
	var pulled []string
	for name := range strings.Lines(onNode(t, append(ctr, "ls", "-q")...)) {
		if strings.HasPrefix(name, registry+"/") {
			pulled = append(pulled, strings.TrimSpace(name))
		}
	}
	if len(pulled) == 0 {
		t.Error("the node pulled nothing from the registry")
		return
	}
	onNode(t, append(append(ctr, "rm"), pulled...)...)
}

// releasing is the environment in which a page makes a release: not in the checkout's dist/, where a person may have
// one, and for this machine alone, since building for others takes minutes and is tested with the release.
func releasing(t *testing.T) []string {
	t.Helper()
	return []string{"DIST=" + filepath.Join(t.TempDir(), "dist"), "ARCHITECTURES=" + runtime.GOARCH, "PLUGIN_PLATFORMS="}
}

// putBack installs what the checkout has, after a page installed what it had pushed.
func putBack(t *testing.T) {
	for _, target := range []string{"deploy", "deploy-mcp", "deploy-console"} {
		command{args: []string{"make", "-s", target}, limit: 5 * time.Minute}.must(t)
	}
}

func TestForward(t *testing.T) {
	t.Parallel()
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	far, near := listen(), listen()
	go forward(near, far.Addr().String())
	go func() {
		c, err := far.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		asked, _ := io.ReadAll(c)
		_, _ = io.WriteString(c, "answer to "+string(asked))
	}()
	c, err := net.Dial("tcp", near.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = io.WriteString(c, "question")
	err = errors.Join(err, c.(*net.TCPConn).CloseWrite())
	answer, readErr := io.ReadAll(c)
	if err := errors.Join(err, readErr); err != nil || string(answer) != "answer to question" {
		t.Errorf("got %q, %v", answer, err)
	}
}

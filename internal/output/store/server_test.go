package store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// testTimeout bounds every wait, so that a test that fails ends.
const testTimeout = 2 * time.Minute

const testBucket = "output"

// s3Server is the real server on a folder, behind a proxy that the test breaks.
type s3Server struct {
	t     testing.TB
	dir   string
	proxy *proxy

	command *exec.Cmd
	log     *bytes.Buffer
	prepare func(program string, args ...string) *exec.Cmd
}

// startServer starts a server that keeps its files in a folder of the test.
func startServer(t testing.TB) *s3Server {
	t.Helper()
	s := &s3Server{t: t, dir: t.TempDir(), prepare: exec.Command}
	s.begin()
	return s
}

// begin starts the server and the proxy before it.
func (s *s3Server) begin() {
	s.t.Helper()
	s.t.Setenv("AWS_ACCESS_KEY_ID", "test-account")
	s.t.Setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
	s.t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	// The path of a socket must be short.
	dir, err := os.MkdirTemp("", "s3")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { os.RemoveAll(dir) })
	s.proxy = startProxy(s.t, filepath.Join(dir, "s"))
	s.start()
	s.t.Cleanup(s.kill)
}

// start starts the server's process and waits until it serves.
func (s *s3Server) start() {
	s.t.Helper()
	os.Remove(s.proxy.target)
	s.log = &bytes.Buffer{}
	s.command = s.prepare(serverProgram, "-address", s.proxy.target, "-dir", s.dir, "-bucket", testBucket)
	s.command.Stdout, s.command.Stderr = s.log, s.log
	// A test that runs out of time cleans nothing up.
	s.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.command.Start(); err != nil {
		s.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.proxy.target)
	}}}
	eventually(s.t, "the server serves", func() bool {
		response, err := client.Get("http://store/healthz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// kill ends the server's process as a lost node does.
func (s *s3Server) kill() {
	if s.command == nil {
		return
	}
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
	s.command = nil
	if s.t.Failed() {
		s.t.Logf("the server said:\n%s", s.log)
	}
}

// url is the location of the server's bucket.
func (s *s3Server) url() string {
	return fmt.Sprintf("s3://%s?endpoint=http://%s", testBucket, s.proxy.address())
}

// path is the file of an object.
func (s *s3Server) path(object string) string { return filepath.Join(s.dir, testBucket, object) }

// open opens the store at a location.
func open(t testing.TB, url string) *Store {
	t.Helper()
	location, err := ParseLocation(url)
	if err != nil {
		t.Fatal(err)
	}
	store, err := Open(t.Context(), location, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// eventually looks until something is so.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.After(testTimeout)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("it never came to pass that %s", what)
		}
	}
}

// proxy passes on connections to a socket, as long as the test lets it.
type proxy struct {
	listener net.Listener
	target   string
	copying  sync.WaitGroup

	mu sync.Mutex
	// away: connections are reset. stalled: nothing is passed on. cuts: that many connections are reset after cutAfter bytes.
	away, stalled bool
	cuts          int
	cutAfter      int64
	conns         map[net.Conn]bool
	most          int
	accepted      int
	// down counts the bytes that came from the server.
	down int64
	// changed is closed when something changes.
	changed chan struct{}
}

func startProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: target, conns: map[net.Conn]bool{}, changed: make(chan struct{})}
	p.copying.Go(p.serve)
	t.Cleanup(func() {
		listener.Close()
		p.set(func() { p.away = true })
		p.copying.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// set changes how the proxy behaves; connections that are there end when it is away.
func (p *proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
	if p.away {
		for c := range p.conns {
			c.Close()
		}
	}
}

func (p *proxy) counts() (accepted, most int, down int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted, p.most, p.down
}

func (p *proxy) serve() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.copying.Go(func() { p.handle(conn.(*net.TCPConn)) })
	}
}

func (p *proxy) handle(client *net.TCPConn) {
	defer client.Close()
	p.mu.Lock()
	p.accepted++
	limit := int64(-1)
	if p.cuts > 0 {
		p.cuts--
		limit = p.cutAfter
	}
	if p.away {
		p.mu.Unlock()
		_ = client.SetLinger(0)
		return
	}
	p.mu.Unlock()
	server, err := net.Dial("unix", p.target)
	if err != nil {
		_ = client.SetLinger(0)
		return
	}
	defer server.Close()
	if !p.enter(client, server) {
		return
	}
	defer p.leave(client, server)
	p.copying.Go(func() {
		defer client.Close()
		p.pass(client, server, -1, true)
	})
	p.pass(server, client, limit, false)
}

func (p *proxy) enter(client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[client], p.conns[server] = true, true
	p.most = max(p.most, len(p.conns)/2)
	return !p.away
}

func (p *proxy) leave(client, server net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}

// pass copies until an end, or until limit bytes if that isn't negative.
func (p *proxy) pass(to, from net.Conn, limit int64, down bool) {
	buffer := make([]byte, 32<<10)
	for limit != 0 {
		n, err := from.Read(buffer)
		if limit > 0 {
			n = int(min(int64(n), limit))
			limit -= int64(n)
		}
		if !p.mayPass(from) {
			return
		}
		if down {
			p.mu.Lock()
			p.down += int64(n)
			p.mu.Unlock()
		}
		if _, writeErr := to.Write(buffer[:n]); writeErr != nil || err != nil {
			return
		}
	}
	_ = from.(*net.TCPConn).SetLinger(0)
}

// mayPass waits while the proxy is stalled.
func (p *proxy) mayPass(from net.Conn) bool {
	for {
		p.mu.Lock()
		stalled, away, changed, here := p.stalled, p.away, p.changed, p.conns[from]
		p.mu.Unlock()
		if away || !here {
			return false
		}
		if !stalled {
			return true
		}
		<-changed
	}
}

var _ io.Closer = (*Store)(nil)

package subresources_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/subresources"
	"toolcall.dev/operator/internal/testing/apitest"
)

// replica is a server that the test asks as the API server does.
type replica struct {
	*space
	address string
	port    int32
	stop    func()
}

// start runs a server until the test ends, or until it is stopped.
func (s *space) start(sources []output.Source, leader subresources.Leader, stored ...output.Source) *replica {
	s.t.Helper()
	server, err := s.newServer(sources, leader, stored...)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.serve(server)
}

// serve runs a server until the test ends, or until it is stopped.
func (s *space) serve(server *subresources.Server) *replica {
	s.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Run(ctx, listener); err != nil {
			s.t.Error(err)
		}
	}()
	r := &replica{space: s, address: listener.Addr().String(), port: int32(listener.Addr().(*net.TCPAddr).Port), stop: func() {
		cancel()
		<-ended
	}}
	s.t.Cleanup(r.stop)
	return r
}

// transport shows a certificate to the server, and believes the operator's authority.
func (r *replica) transport(certificates ...tls.Certificate) *http.Transport {
	pool := x509.NewCertPool()
	pool.AddCert(r.identity.Authority())
	t := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: service + "." + system + ".svc", Certificates: certificates}}
	r.t.Cleanup(t.CloseIdleConnections)
	return t
}

// get asks for output as a member of system:masters.
func (r *replica) get(transport *http.Transport, call, query string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "https://"+r.address+r.pathOf(call, query), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("X-Remote-User", "root")
	request.Header.Set("X-Remote-Group", "system:masters")
	request.Header.Set("Toolcall-Forwarded", "true")
	response, err := transport.RoundTrip(request)
	if err == nil {
		r.t.Cleanup(func() { response.Body.Close() })
	}
	return response, err
}

// expect waits for an answer: the server learns whom to trust a moment after its start.
func (r *replica) expect(call, query string, code int) *http.Response {
	r.t.Helper()
	transport := r.transport(r.front)
	var response *http.Response
	eventually(r.t, func() error {
		var err error
		if response, err = r.get(transport, call, query); err != nil {
			return err
		}
		if response.StatusCode != code {
			return fmt.Errorf("answer %d, want %d", response.StatusCode, code)
		}
		return nil
	})
	return response
}

func TestNobodyButTheAPIServerGetsIn(t *testing.T) {
	s := newSpace(t)
	s.finished("call", "x")
	r := s.start(nil, nil)
	r.expect("call", "", http.StatusOK)
	own, err := apitest.NewCertificate("front-proxy-ca", nil)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := apitest.NewCertificate("front-proxy-client", &own)
	if err != nil {
		t.Fatal(err)
	}
	for name, certificates := range map[string][]tls.Certificate{"no certificate": nil, "a certificate of its own": {own}, "one that it signed": {forged}} {
		if response, err := r.get(r.transport(certificates...), "call", ""); err == nil {
			t.Errorf("%s: answer %d", name, response.StatusCode)
		}
	}
	// The operator's certificate for runners is a server's, and not a replica's.
	conf, err := s.identity.ServerTLS(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if response, err := r.get(r.transport(conf.Certificates...), "call", ""); err == nil {
		t.Errorf("the dispatch listener's certificate: answer %d", response.StatusCode)
	}
}

func TestAStopEndsAFollowCleanly(t *testing.T) {
	s := newSpace(t)
	call := s.create(s.admin, "call", "")
	s.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning})
	source := apitest.NewStreams()
	out := source.Add(call, output.Stdout)
	_, _ = out.Write([]byte("one\n"))
	before := s.start([]output.Source{source}, nil)
	response := before.expect("call", "follow=true", http.StatusOK)
	got := make([]byte, 4)
	if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != "one\n" {
		t.Fatalf("%q, %v", got, err)
	}
	before.stop()
	if rest, err := io.ReadAll(response.Body); err != nil || len(rest) > 0 {
		t.Fatalf("after the stop: %q, %v", rest, err)
	}
	_, _ = out.Write([]byte("two\n"))
	out.Finish()
	after := s.start([]output.Source{source}, nil)
	if got := body(t, after.expect("call", "follow=true&offset=4", http.StatusOK)); string(got) != "two\n" {
		t.Errorf("%q", got)
	}
}

// Nothing of a server is left when it has stopped.
func TestAStoppedServerLeavesNothing(t *testing.T) {
	s := newSpace(t)
	s.finished("call", "x")
	// What the libraries start once stays.
	first := s.start(nil, nil)
	first.expect("call", "", http.StatusOK)
	first.stop()
	before := goleak.IgnoreCurrent()
	r := s.start(nil, nil)
	transport := r.transport(r.front)
	eventually(t, func() error {
		response, err := r.get(transport, "call", "")
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		return err
	})
	r.stop()
	transport.CloseIdleConnections()
	goleak.VerifyNone(t, before)
}

func TestFollowsAndTransfersOutliveTheRequestTimeout(t *testing.T) {
	const timeout = time.Second
	p := newPod(t)
	call := p.create(p.admin, "call", "")
	p.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning})
	source := apitest.NewStreams()
	out := source.Add(call, output.Stdout)
	options, err := p.serverOptions([]output.Source{source}, nil)
	if err != nil {
		t.Fatal(err)
	}
	options.RequestTimeout = timeout
	server, err := subresources.New(*options)
	if err != nil {
		t.Fatal(err)
	}
	r := p.serve(server)
	follow := r.expect("call", "follow=true", http.StatusOK)
	transport := r.transport(r.front)
	p.outlive(timeout, out, follow, func(content io.Reader) (*http.Response, error) {
		return transport.RoundTrip(p.asOwner(r, http.MethodPut, p.fileURL("file", ""), content))
	})
}

// The API server cuts what it doesn't take for long-running.
func TestFollowsAndTransfersOutliveTheAPIServersRequestTimeout(t *testing.T) {
	p := newPod(t)
	call := p.create(p.admin, "call", "")
	p.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning})
	out := p.streams.Add(call, output.Stdout)
	follow := p.ask(p.Config, http.MethodGet, p.pathOf("call", "follow=true"))
	if follow.StatusCode != http.StatusOK {
		t.Fatalf("answer %d: %s", follow.StatusCode, body(t, follow))
	}
	c, err := rest.HTTPClientFor(p.owner)
	if err != nil {
		t.Fatal(err)
	}
	p.outlive(requestTimeout, out, follow, func(content io.Reader) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, strings.TrimSuffix(p.owner.Host, "/")+p.fileURL("file", ""), content)
		if err != nil {
			return nil, err
		}
		return c.Do(r)
	})
}

// outlive has a follow and an upload last longer than a timeout.
func (p *pod) outlive(timeout time.Duration, out *apitest.Stream, follow *http.Response, put func(io.Reader) (*http.Response, error)) {
	p.t.Helper()
	reader, writer := io.Pipe()
	answered := make(chan error, 1)
	go func() {
		response, err := put(reader)
		if err == nil {
			defer response.Body.Close()
			if response.StatusCode != http.StatusCreated {
				err = fmt.Errorf("answer %d", response.StatusCode)
			}
		}
		reader.CloseWithError(err)
		answered <- err
	}()
	for _, text := range []string{"one\n", "two\n"} {
		_, _ = out.Write([]byte(text))
		if _, err := io.WriteString(writer, text); err != nil {
			p.t.Fatal(err)
		}
		time.Sleep(timeout*3/4 + time.Second/4)
	}
	out.Finish()
	writer.Close()
	if got, err := io.ReadAll(follow.Body); err != nil || string(got) != "one\ntwo\n" {
		p.t.Errorf("the follow: %q, %v", got, err)
	}
	if err := <-answered; err != nil {
		p.t.Errorf("the upload: %v", err)
	} else if got := p.onDisk("file"); got != "one\ntwo\n" {
		p.t.Errorf("the file: %q", got)
	}
}

// asOwner is a request to a replica, as the API server sends it for the session's owner.
func (p *pod) asOwner(r *replica, method, path string, content io.Reader) *http.Request {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), method, "https://"+r.address+path, content)
	if err != nil {
		p.t.Fatal(err)
	}
	for name, value := range map[string]string{"X-Remote-User": "owner", "X-Remote-Uid": "uid-of-owner", "X-Remote-Group": "system:authenticated"} {
		request.Header.Set(name, value)
	}
	return request
}

// lease is the operator's, held by whoever is at the address.
func (s *space) lease(ip string) *coordinationv1.Lease {
	s.t.Helper()
	labels, err := subresources.LeaderLabels(ip)
	if err != nil {
		s.t.Fatal(err)
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "lease", Labels: labels},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("leader_1"), LeaseDurationSeconds: ptr.To[int32](60), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}
	if err := s.admin.Create(s.t.Context(), lease); err != nil {
		s.t.Fatal(err)
	}
	return lease
}

// startLeader starts a replica that has the Lease.
func (s *space) startLeader(source output.Source) *replica {
	s.t.Helper()
	elected := make(chan struct{})
	close(elected)
	return s.start([]output.Source{source}, s.follower(1, elected))
}

// follower finds the leader in the space's Lease.
func (s *space) follower(port int32, elected chan struct{}) *subresources.LeaseLeader {
	s.t.Helper()
	clients, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		s.t.Fatal(err)
	}
	return &subresources.LeaseLeader{
		Leases: clients.CoordinationV1().Leases(s.namespace), Name: "lease", Port: port, Elected: elected, Clock: clock.RealClock{},
	}
}

func TestWhatTheLeaderHasTheOthersGetFromIt(t *testing.T) {
	s := newSpace(t)
	call := s.create(s.admin, "call", "")
	s.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning})
	source := apitest.NewStreams()
	out := source.Add(call, output.Stdout)
	_, _ = out.Write([]byte("one\n"))
	leader := s.startLeader(source)
	other := s.start(nil, s.follower(leader.port, nil))
	status := statusOf(t, other.expect("call", "", http.StatusServiceUnavailable))
	if !strings.Contains(status.Message, "leader") || status.Details.RetryAfterSeconds < 1 {
		t.Errorf("without a Lease: %+v", status)
	}
	s.lease("127.0.0.1")
	response := other.expect("call", "follow=true", http.StatusOK)
	for _, line := range []string{"one\n", "two\n"} {
		got := make([]byte, 4)
		if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != line {
			t.Fatalf("%q, %v", got, err)
		}
		_, _ = out.Write([]byte("two\n"))
	}
	if got := response.Header.Get(subresources.HeaderUID); got != string(call.UID) {
		t.Errorf("uid %q", got)
	}
	for name, values := range response.Header {
		if len(values) > 1 {
			t.Errorf("%s is there %d times", name, len(values))
		}
	}
	// The user is the one of the request, and not the replica.
	own, err := s.identity.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "replica.toolcall.dev"}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if status := statusOf(t, leader.as("nobody", "call", own)); status.Reason != metav1.StatusReasonForbidden || !strings.Contains(status.Message, `User "nobody"`) {
		t.Errorf("as nobody: %+v", status)
	}
	// What is kept each serves by itself. The rest of a call that has ended may still be at the leader.
	s.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseSucceeded, Stdout: "x", Streams: &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: 12, Truncated: true}}})
	out.Finish()
	if got := string(body(t, other.expect("call", "", http.StatusOK))); got != "one\ntwo\ntwo\n" {
		t.Errorf("%q", got)
	}
	leader.stop()
	if rest, err := io.ReadAll(response.Body); err != nil || string(rest) != "two\n" {
		t.Errorf("when the leader stops: %q, %v", rest, err)
	}
	s.finished("whole", "kept")
	if got := string(body(t, other.expect("whole", "", http.StatusOK))); got != "kept" {
		t.Errorf("%q", got)
	}
	other.expect("call", "", http.StatusServiceUnavailable)
}

// as asks as another user, with a certificate.
func (r *replica) as(user, call string, certificate tls.Certificate) *http.Response {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "https://"+r.address+r.pathOf(call, ""), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("X-Remote-User", user)
	response, err := r.transport(certificate).RoundTrip(request)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { response.Body.Close() })
	return response
}

func TestTheLeaseSaysWhereTheLeaderIs(t *testing.T) {
	s := newSpace(t)
	now := metav1.NowMicro()
	for name, tc := range map[string]struct {
		change func(*coordinationv1.Lease)
		want   string
	}{
		"held":           {func(*coordinationv1.Lease) {}, "[fd00::5]:10250"},
		"given up":       {func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("") }, ""},
		"not renewed":    {func(l *coordinationv1.Lease) { l.Spec.RenewTime = &metav1.MicroTime{Time: now.Add(-2 * time.Minute)} }, ""},
		"never held":     {func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil }, ""},
		"no address":     {func(l *coordinationv1.Lease) { l.Labels = nil }, ""},
		"not an address": {func(l *coordinationv1.Lease) { l.Labels[subresources.LabelLeaderAddress] = "example.com" }, ""},
	} {
		lease := s.lease("fd00::5")
		tc.change(lease)
		if err := s.admin.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		if got, err := s.follower(10250, nil).Address(t.Context()); got != tc.want || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err := s.admin.Delete(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
}

package subresources

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/time/rate"
)

// neverMove leaves connections where they are.
var neverMove = rate.NewLimiter(0, 0)

// A client that is refused sends no more of its request, and doesn't say that either.
func TestAnAnswerThatDidNotWaitForTheRequestEndsIt(t *testing.T) {
	t.Parallel()
	leader := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusForbidden)
	}))
	leader.EnableHTTP2 = true
	leader.StartTLS()
	defer leader.Close()
	f := &forwarder{
		leader:    someLeader(leader.Listener.Addr().String()),
		transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		moves:     neverMove,
	}
	defer f.transport.CloseIdleConnections()
	body, sends := io.Pipe()
	defer sends.Close()
	r := httptest.NewRequest(http.MethodPut, "/", body)
	r.ContentLength = 1 << 20
	w := httptest.NewRecorder()
	if err := f.serve(exchangeBy("u", w, r), false); err != nil || w.Code != http.StatusForbidden || w.Body.String() != "no\n" {
		t.Errorf("%v, %d, %q", err, w.Code, w.Body)
	}
	if _, err := sends.Write([]byte("more")); err == nil {
		t.Error("the rest of the request is waited for")
	}
}

// An archive has no length: that it broke off shows only if the connection does.
func TestAnArchiveThatBreaksOffDoesSoBehindAReplica(t *testing.T) {
	t.Parallel()
	leader := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(make([]byte, 100<<10))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	leader.EnableHTTP2 = true
	leader.StartTLS()
	defer leader.Close()
	f := &forwarder{
		leader:    someLeader(leader.Listener.Addr().String()),
		transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		moves:     neverMove,
	}
	defer f.transport.CloseIdleConnections()
	for name, isFollow := range map[string]bool{"an archive or a range": false, "a follow": true} {
		for _, h2 := range []bool{false, true} {
			front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := f.serve(exchangeBy("u", w, r), isFollow); err != nil {
					t.Error(err)
				}
			}))
			front.EnableHTTP2 = h2
			front.StartTLS()
			r, err := front.Client().Get(front.URL)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, r.Body)
			r.Body.Close()
			if n != 100<<10 || (err == nil) != isFollow {
				t.Errorf("%s over %s: %d bytes, error %v", name, r.Proto, n, err)
			}
			front.Close()
		}
	}
}

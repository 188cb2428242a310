package subresources

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

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
	}
	defer f.transport.CloseIdleConnections()
	body, sends := io.Pipe()
	defer sends.Close()
	r := httptest.NewRequest(http.MethodPut, "/", body)
	r.ContentLength = 1 << 20
	w := httptest.NewRecorder()
	if err := f.serve(w, r, &user.DefaultInfo{Name: "u"}); err != nil || w.Code != http.StatusForbidden || w.Body.String() != "no\n" {
		t.Errorf("%v, %d, %q", err, w.Code, w.Body)
	}
	if _, err := sends.Write([]byte("more")); err == nil {
		t.Error("the rest of the request is waited for")
	}
}

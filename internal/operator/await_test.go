package operator

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// An API server that answers with each of the codes once, and then well.
func apiServerThatSays(t *testing.T, codes ...int) (server discovery.DiscoveryInterface, asked *atomic.Int32) {
	t.Helper()
	asked = &atomic.Int32{}
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n := int(asked.Add(1)); n <= len(codes) {
			w.WriteHeader(codes[n-1])
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"major":"1","minor":"36"}`))
	}))
	t.Cleanup(listener.Close)
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: listener.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client, asked
}

func TestTheStartWaitsForAnAPIServerThatIsNotWhole(t *testing.T) {
	t.Parallel()
	server, asked := apiServerThatSays(t, http.StatusServiceUnavailable, http.StatusUnauthorized, http.StatusForbidden)
	if err := awaitAPI(t.Context(), server, logr.Discard()); err != nil {
		t.Fatal(err)
	}
	if asked.Load() != 4 {
		t.Errorf("it was asked %d times", asked.Load())
	}
}

func TestTheStartEndsWithTheProcessWhileTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := awaitAPI(ctx, client, logr.Discard()); err == nil {
		t.Error("it went on without an API server")
	}
}

// A server that answers with a code to everything, or with an empty list.
func callsThatAnswer(t *testing.T, code *atomic.Int32) rest.Interface {
	t.Helper()
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/toolcall.dev/v1alpha1/toolcalls" || !strings.Contains(r.URL.Query().Get("fieldSelector"), "status.phase!=Succeeded") {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(code.Load()))
		_, _ = w.Write([]byte(`{}`))
	}))
	t.Cleanup(listener.Close)
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: listener.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client.RESTClient()
}

func TestTheStartWaitsForTheKinds(t *testing.T) {
	t.Parallel()
	code := &atomic.Int32{}
	code.Store(http.StatusNotFound)
	server := callsThatAnswer(t, code)
	time.AfterFunc(500*time.Millisecond, func() { code.Store(http.StatusOK) })
	if err := awaitKinds(t.Context(), server, nil, logr.Discard()); err != nil {
		t.Error(err)
	}
}

func TestTheStartSaysWhichKindsAreMissing(t *testing.T) {
	t.Parallel()
	for status, want := range map[int32]string{http.StatusNotFound: "install the CustomResourceDefinitions of this release (config/crd)", http.StatusBadRequest: "earlier release", http.StatusForbidden: "list calls"} {
		code := &atomic.Int32{}
		code.Store(status)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := awaitKinds(ctx, callsThatAnswer(t, code), nil, logr.Discard()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: got %v, want %q", status, err, want)
		}
	}
}

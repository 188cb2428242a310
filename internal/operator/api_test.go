package operator

import (
	"context"
	"net/http"
	"net/http/httptest"
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

package operator

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
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
		const calls = "/apis/toolcall.dev/v1alpha1/toolcalls"
		if r.URL.Path == calls && !strings.Contains(r.URL.Query().Get("fieldSelector"), "status.phase!=Succeeded") || r.URL.Query().Get("limit") != "1" {
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
	for status, want := range map[int32]string{http.StatusNotFound: "install the CustomResourceDefinitions of this release (config/crd)", http.StatusBadRequest: "earlier release", http.StatusForbidden: "list executionpolicies"} {
		code := &atomic.Int32{}
		code.Store(status)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := awaitKinds(ctx, callsThatAnswer(t, code), nil, logr.Discard()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: got %v, want %q", status, err, want)
		}
	}
}

// The cache can't be set up without each of them, which would end the process.
func TestTheStartWaitsForEveryKind(t *testing.T) {
	t.Parallel()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	var served, awaited []string
	for kind, object := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		if _, isObject := reflect.New(object).Interface().(client.Object); isObject {
			plural, _ := meta.UnsafeGuessKindToResource(v1alpha1.GroupVersion.WithKind(kind))
			served = append(served, plural.Resource)
		}
	}
	for _, kind := range kinds {
		awaited = append(awaited, kind.resource)
	}
	slices.Sort(served)
	slices.Sort(awaited)
	if diff := cmp.Diff(served, awaited); diff != "" {
		t.Errorf("(-served +awaited)\n%s", diff)
	}
	for _, missing := range awaited {
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			var isThere atomic.Bool
			listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, "/namespaces/one/") == strings.HasSuffix(r.URL.Path, "/executionpolicies") {
					t.Errorf("asked for %s", r.URL)
				}
				if path.Base(r.URL.Path) == missing && !isThere.Load() {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{}`))
			}))
			t.Cleanup(listener.Close)
			server, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: listener.URL})
			if err != nil {
				t.Fatal(err)
			}
			for limit := time.Second; ; limit *= 2 {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				err := awaitKinds(ctx, server.RESTClient(), []string{"one"}, logr.Discard())
				cancel()
				if err != nil && strings.Contains(err.Error(), "doesn't serve "+missing) {
					break
				}
				// On a busy machine it may not come that far.
				if err == nil || !errors.Is(err, context.DeadlineExceeded) || limit > time.Minute {
					t.Fatalf("without it: %v", err)
				}
			}
			isThere.Store(true)
			if err := awaitKinds(t.Context(), server.RESTClient(), []string{"one"}, logr.Discard()); err != nil {
				t.Errorf("with it: %v", err)
			}
		})
	}
}

// An API server may fail, and the Service may be installed after the operator.
func TestTheStartWaitsForTheServiceForRunners(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if want := "/api/v1/namespaces/home/services/toolcall-dispatch"; r.URL.Path != want {
			t.Errorf("asked for %s", r.URL)
		}
		switch asked.Add(1) {
		case 1:
			http.NotFound(w, r)
		case 2:
			w.WriteHeader(http.StatusGatewayTimeout)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Service","spec":{"clusterIP":"10.0.0.9","ports":[{"port":9443}]}}`))
		}
	}))
	t.Cleanup(server.Close)
	clients := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})
	service, err := awaitService(t.Context(), clients, &Options{Namespace: "home"}, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"127.0.0.1:1", "10.0.0.9:9443"}, endpoints("127.0.0.1", 1, service)); diff != "" {
		t.Error(diff)
	}
}

// A request for the cluster's features that fails is made again; waiting doesn't help with an old cluster.
func TestTheStartWaitsForWhatTheClusterHas(t *testing.T) {
	t.Parallel()
	for version, isSupported := range map[string]bool{"v1.36.0": true, "v1.32.9": false} {
		var asked atomic.Int32
		whole := versionHandler(version, "validatingadmissionpolicies")
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) == 1 {
				w.WriteHeader(http.StatusGatewayTimeout)
				return
			}
			whole(w, r)
		}))
		t.Cleanup(server.Close)
		clients := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})
		found, err := awaitFeatures(t.Context(), clients, &Options{RunnerDelivery: DeliverCopied}, logr.Discard())
		if isSupported && (err != nil || found.version != version) || !isSupported && !isUnsupported(err) {
			t.Errorf("Kubernetes %s: %+v, %v", version, found, err)
		}
	}
}

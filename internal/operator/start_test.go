package operator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/testing/address"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/testing/apitest"
)

// bareCluster is an API server whose operator has no rights until they are given, and that never serves calls.
type bareCluster struct {
	url      string
	mayWork  atomic.Bool
	kinds    atomic.Int32
	looked   atomic.Int32
	patched  chan string
	caBundle string
}

const apiServicePath = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.subresources.toolcall.dev"

func newBareCluster(t *testing.T, caBundle string) *bareCluster {
	t.Helper()
	c := &bareCluster{patched: make(chan string, 16), caBundle: caBundle}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// ServeHTTP answers what the operator asks for when it starts.
func (c *bareCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	answer := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	resources := func(group string, names ...string) {
		list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group}
		for _, name := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name, Kind: "APIService", Verbs: []string{"get", "patch"}})
		}
		answer(list)
	}
	switch path := r.URL.Path; {
	case path == "/version":
		answer(map[string]string{"gitVersion": "v1.36.0"})
	case strings.HasSuffix(path, "/selfsubjectaccessreviews"):
		review := &authorizationv1.SelfSubjectAccessReview{}
		_ = json.Unmarshal(body, review)
		review.Status.Allowed = c.mayWork.Load()
		answer(review)
	case path == "/apis/admissionregistration.k8s.io/v1":
		resources("admissionregistration.k8s.io/v1", "validatingadmissionpolicies")
	case path == "/api":
		answer(&metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}})
	case path == "/apis":
		version := metav1.GroupVersionForDiscovery{GroupVersion: "apiregistration.k8s.io/v1", Version: "v1"}
		group := metav1.APIGroup{Name: "apiregistration.k8s.io", Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
		answer(&metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{group}})
	case path == "/apis/apiregistration.k8s.io/v1":
		resources("apiregistration.k8s.io/v1", "apiservices")
	case path == apiServicePath:
		if r.Method == http.MethodPatch {
			c.patched <- string(body)
		}
		c.looked.Add(1)
		answer(map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
			"metadata": map[string]any{"name": filepath.Base(path), "resourceVersion": "1"},
			"spec":     map[string]any{"service": map[string]any{"namespace": "home", "name": "toolcall-subresources"}, "caBundle": c.caBundle},
		})
	default:
		if strings.HasPrefix(path, "/apis/toolcall.dev/") {
			c.kinds.Add(1)
		}
		http.NotFound(w, r)
	}
}

// startReplica runs a replica whose identity is mounted.
func startReplica(t *testing.T, c *bareCluster) (*Options, *dispatch.Identity) {
	t.Helper()
	identity, err := dispatch.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := identity.Encode()
	if err != nil {
		t.Fatal(err)
	}
	o := newOptions(t, "home")
	err = errors.Join(
		os.WriteFile(filepath.Join(o.IdentityDir, corev1.TLSCertKey), cert, 0o600),
		os.WriteFile(filepath.Join(o.IdentityDir, corev1.TLSPrivateKeyKey), key, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	runReplica(t, &rest.Config{Host: c.url, QPS: -1}, o)
	return o, identity
}

func newOptions(t *testing.T, namespace string) *Options {
	t.Helper()
	return &Options{
		RunnerImage: "example.com/runner:1", RunnerDelivery: DeliverCopied, DispatchAddress: address.Free(t), IdentityDir: t.TempDir(),
		MetricsAddress: "0", HealthAddress: address.Free(t), LeaderElect: true, ConcurrentCalls: 1,
		QPS: 1000, Namespace: namespace, PodIP: "127.0.0.1",
		OutputAPI: true, OutputAPIAddress: address.Free(t),
	}
}

// runReplica runs a replica until the test ends.
func runReplica(t *testing.T, conf *rest.Config, o *Options) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r, err := newReplica(ctx, conf, o, logr.Discard())
	if err != nil {
		stop()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ended
		r.close(context.Background())
	})
}

// peer is a client that shows the certificate of another replica.
func peer(t *testing.T, identity *dispatch.Identity) *http.Client {
	t.Helper()
	now := time.Now()
	shown, err := identity.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "replica.toolcall.dev"}, NotAfter: now.Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	authority := x509.NewCertPool()
	authority.AddCert(identity.Authority())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority, ServerName: "replica.toolcall.dev", Certificates: []tls.Certificate{shown}}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 5 * time.Second}
}

// discover asks for the resources of the aggregated API.
func discover(client *http.Client, address string) error {
	request, err := http.NewRequest(http.MethodGet, "https://"+address+"/apis/subresources.toolcall.dev/v1alpha1", nil)
	if err != nil {
		return err
	}
	request.Header.Set("X-Remote-User", "system:apiserver")
	request.Header.Set("X-Remote-Group", "system:masters")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || !strings.Contains(string(said), "toolcalls/log")) {
		err = fmt.Errorf("%s: %s", response.Status, said)
	}
	return err
}

// probe gives the code with which the kubelet is answered.
func probe(t *testing.T, o *Options, path string) int {
	t.Helper()
	response, err := http.Get("http://" + o.HealthAddress + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// patience is longer than an API server takes to ask again for the resources of a group that failed.
const patience = 2 * time.Minute

func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	err := errors.New("not tried")
	for end := time.Now().Add(patience); err != nil && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		err = try()
	}
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func atLeastOne(t *testing.T, what string, count *atomic.Int32) {
	t.Helper()
	eventually(t, what, func() error {
		if count.Load() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
}

// A group of the API that doesn't answer keeps every namespace of the cluster from being deleted.
func TestDiscoveryAnswersWhileTheClusterLacksWhatTheOperatorNeeds(t *testing.T) {
	c := newBareCluster(t, "")
	o, identity := startReplica(t, c)
	client := peer(t, identity)
	answers := func() error { return discover(client, o.OutputAPIAddress) }
	eventually(t, "discovery without the operator's rights", answers)
	if code := probe(t, o, "/healthz"); code != http.StatusOK {
		t.Errorf("alive: %d", code)
	}
	if code := probe(t, o, "/readyz"); code == http.StatusOK {
		t.Error("a replica that can't work is ready")
	}
	select {
	case patch := <-c.patched:
		if !strings.Contains(patch, "caBundle") {
			t.Errorf("patched with %s", patch)
		}
	case <-time.After(patience):
		t.Error("the API server isn't told whom to believe")
	}
	c.mayWork.Store(true)
	atLeastOne(t, "look for the kinds", &c.kinds)
	eventually(t, "discovery without the kinds", answers)
}

// The namespace controller asks in this way, and deletes no namespace while a group fails.
func TestAnAPIServerDiscoversAReplicaThatWaitsForTheKinds(t *testing.T) {
	conf := apiservertest.New(t, apiservertest.Options{Configure: func(env *envtest.Environment, folder string) error {
		_, err := apitest.Prepare(env, folder)
		return err
	}}).Config
	o := newOptions(t, "toolcall-system")
	registerWithout(t, conf, o)
	clients := kubernetes.NewForConfigOrDie(conf)
	eventually(t, "discovery that fails without the operator", func() error {
		if _, err := clients.Discovery().ServerPreferredNamespacedResources(); !discovery.IsGroupDiscoveryFailedError(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	runReplica(t, conf, o)
	eventually(t, "discovery while the kinds are missing", func() error {
		_, err := clients.Discovery().ServerPreferredNamespacedResources()
		return err
	})
}

// registerWithout installs the APIService, and nothing else, with a Service that leads to this process.
func registerWithout(t *testing.T, conf *rest.Config, o *Options) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "manager", "apiservice.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	service := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, service); err != nil {
		t.Fatal(err)
	}
	port, err := portOf("", o.OutputAPIAddress)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(conf, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		unstructured.SetNestedField(service.Object, int64(port), "spec", "service", "port"),
		admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Namespace}}),
		admin.Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: outputAPIService},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
		}),
		admin.Create(t.Context(), service),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// The leader's authority may be another one, while the identity is replaced.
func TestAReplicaThatCannotWorkLeavesAnAuthorityAlone(t *testing.T) {
	c := newBareCluster(t, "c29tZWJvZHkncw==")
	o, identity := startReplica(t, c)
	client := peer(t, identity)
	eventually(t, "discovery", func() error { return discover(client, o.OutputAPIAddress) })
	atLeastOne(t, "look at the APIService", &c.looked)
	c.mayWork.Store(true)
	atLeastOne(t, "look for the kinds", &c.kinds)
	if len(c.patched) > 0 {
		t.Errorf("patched with %s", <-c.patched)
	}
}

func TestWaitingIsTriedAgainUntilTheProcessEnds(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	tries := 0
	err := await(ctx, logr.Discard(), "a test", func(context.Context) error {
		if tries++; tries < 3 {
			return errors.New("not there")
		}
		return nil
	})
	if err != nil || tries != 3 {
		t.Errorf("%d tries: %v", tries, err)
	}
	err = await(ctx, logr.Discard(), "a test", func(context.Context) error {
		stop()
		return errors.New("never there")
	})
	if err == nil || err.Error() != "never there" {
		t.Errorf("after the end: %v", err)
	}
}

// The role that lets the operator create its identity may come after its pod.
func TestTheIdentityIsMadeAsSoonAsItMayBe(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden})
			return
		}
		made, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(made)
	}))
	t.Cleanup(server.Close)
	clients, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	o := &Options{IdentityDir: t.TempDir(), Namespace: "home"}
	if identity, err := loadIdentity(t.Context(), o, clients, logr.Discard()); err != nil || identity == nil || asked.Load() != 2 {
		t.Errorf("after %d tries: %v", asked.Load(), err)
	}
}

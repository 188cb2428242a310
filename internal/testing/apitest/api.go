// Package apitest serves the real aggregated API behind an API server of envtest, for the tests of what reads output through it.
// The streams are in memory.
package apitest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/subresources"
	"toolcall.dev/operator/internal/testing/apiservertest"
)

const (
	system   = "toolcall-system"
	service  = "toolcall-subresources"
	patience = time.Minute
)

// API is the aggregated API.
type API struct {
	*Streams
	config   *rest.Config
	identity *dispatch.Identity
	// listener outlives the servers behind it, so that the API server never finds it closed: it would wait long until it tries again.
	listener *net.TCPListener
	stop     context.CancelFunc
	ended    chan error
}

// Prepare gives an API server that isn't started yet what it needs to pass requests on, and returns the certificate that it does so
// with. The folder is for its certificates.
func Prepare(env *envtest.Environment, dir string) (tls.Certificate, error) {
	authority, err := NewCertificate("front-proxy-ca", nil)
	if err != nil {
		return tls.Certificate{}, err
	}
	front, err := NewCertificate("front-proxy-client", &authority)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(front.PrivateKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	err = errors.Join(
		os.WriteFile(path("front-ca.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate[0]}), 0o600),
		os.WriteFile(path("front.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate[0]}), 0o600),
		os.WriteFile(path("front.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600),
	)
	args := env.ControlPlane.GetAPIServer().Configure()
	for flag, value := range map[string]string{
		"requestheader-client-ca-file":       path("front-ca.crt"),
		"requestheader-allowed-names":        "front-proxy-client",
		"requestheader-username-headers":     "X-Remote-User",
		"requestheader-group-headers":        "X-Remote-Group",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-",
		"proxy-client-cert-file":             path("front.crt"),
		"proxy-client-key-file":              path("front.key"),
	} {
		args.Append(flag, value)
	}
	return front, err
}

// NewCertificate is a client's, or an authority's own when there is no issuer.
func NewCertificate(name string, issuer *tls.Certificate) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, any(key)
	if issuer == nil {
		template.IsCA, template.BasicConstraintsValid = true, true
		template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageCertSign, nil
	} else {
		if parent, err = x509.ParseCertificate(issuer.Certificate[0]); err != nil {
			return tls.Certificate{}, err
		}
		signer = issuer.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// Suite is the tests of a package that read output through the API, which outputs is set to. Setup goes on when the API is served;
// nil for nothing else.
func Suite(outputs **API, setup func(*apiservertest.Server) error) *apiservertest.Suite {
	return &apiservertest.Suite{
		Options: apiservertest.Options{CRDs: true, Configure: func(env *envtest.Environment, folder string) error {
			_, err := Prepare(env, folder)
			return err
		}},
		Setup: func(s *apiservertest.Server) (err error) {
			if *outputs, err = Start(s.Config); err != nil || setup == nil {
				return err
			}
			return setup(s)
		},
		Teardown: func() error {
			if *outputs == nil {
				return nil
			}
			return (*outputs).Stop()
		},
		FindLeaks: true, Leaks: Leaks(),
	}
}

// Start serves the API and registers it with a prepared API server that has the project's kinds.
func Start(config *rest.Config) (*API, error) {
	a := &API{Streams: NewStreams(), config: config}
	var err error
	if a.listener, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, err
	}
	if a.identity, err = dispatch.NewIdentity(time.Now()); err != nil {
		return nil, err
	}
	if err := a.serve(); err != nil {
		return nil, err
	}
	if err := a.register(); err != nil {
		return nil, errors.Join(err, a.Stop())
	}
	return a, nil
}

// Restart ends what is followed, as an operator that is rolled does, and has another server take the next connections.
func (a *API) Restart() error {
	stop, ended := a.stop, a.ended
	err := a.serve()
	stop()
	return errors.Join(err, <-ended)
}

// Stop ends the server.
func (a *API) Stop() error {
	a.stop()
	return errors.Join(<-a.ended, a.listener.Close())
}

func (a *API) serve() error {
	clients, err := kubernetes.NewForConfig(a.config)
	if err != nil {
		return err
	}
	reader, err := client.New(a.config, client.Options{Scheme: apiservertest.Scheme()})
	if err != nil {
		return err
	}
	server, err := subresources.New(subresources.Options{
		Identity: a.identity, Namespace: system, Service: service, Clients: clients, Live: reader, Cached: Indexed{reader},
		Policies: &apicache.Compiled{}, Requesters: &access.Requesters{Reader: reader}, Origins: noOrigins{},
		Reviews: access.NewReviews(clients.AuthorizationV1().SubjectAccessReviews(), clock.RealClock{}),
		Sources: []output.Source{a.Streams}, Clock: aheadClock{}, Log: logr.Discard(),
	})
	if err != nil {
		return err
	}
	file, err := a.listener.File()
	if err != nil {
		return err
	}
	defer file.Close()
	// Closing this one leaves the address open.
	listener, err := net.FileListener(file)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	a.stop, a.ended = stop, make(chan error, 1)
	ended := a.ended
	go func() { ended <- server.Run(ctx, listener) }()
	return nil
}

// aheadClock is ahead of the API server's: what a review is about is created late enough for admission policies to count as in force that
// a test has just installed.
type aheadClock struct{ clock.RealClock }

func (aheadClock) Now() time.Time { return time.Now().Add(time.Minute) }

// noOrigins has sessions that haven't begun: nothing of them is sealed.
type noOrigins struct{}

func (noOrigins) Origin(context.Context, *v1alpha1.ToolSession) (*decide.Origin, error) {
	return nil, nil
}

// register has the APIService lead to the server of this process: the Service is of a type that the API server follows to a
// loopback address.
func (a *API) register() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	admin, err := client.New(a.config, client.Options{})
	if err != nil {
		return err
	}
	port := int64(a.listener.Addr().(*net.TCPAddr).Port)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}}
	if err := admin.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.identity.Authority().Raw})
	registration := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": subresources.APIServiceName},
		"spec": map[string]any{
			"group": subresources.GroupVersion.Group, "version": subresources.GroupVersion.Version,
			"groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"service":  map[string]any{"namespace": system, "name": service, "port": port},
			"caBundle": base64.StdEncoding.EncodeToString(authority),
		},
	}}
	external := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: service},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	if err := errors.Join(admin.Create(ctx, external), admin.Create(ctx, registration)); err != nil {
		return err
	}
	return awaitAvailable(ctx, admin, registration)
}

// awaitAvailable waits until the API server passes requests on.
func awaitAvailable(ctx context.Context, admin client.Client, registration *unstructured.Unstructured) error {
	var conditions []any
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(registration), registration)
		conditions, _, _ = unstructured.NestedSlice(registration.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(c any) bool {
			of, ok := c.(map[string]any)
			return ok && of["type"] == "Available" && of["status"] == "True"
		}), err
	})
	if err != nil {
		return fmt.Errorf("the APIService isn't available: %w: %v", err, conditions)
	}
	return nil
}

// Leaks are goroutines that a stopped server of k8s.io/apiserver leaves, and not what it serves.
func Leaks() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*Typed[...]).updateUnfinishedWorkLoop"),
		goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop"),
	}
}

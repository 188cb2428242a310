package subresources

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizerunion "k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"

	"toolcall.dev/operator/internal/dispatch"
)

// Where the API server says which client certificate it shows to the servers behind it.
const (
	authenticationNamespace = "kube-system"
	authenticationConfigMap = "extension-apiserver-authentication"
)

// answerTTL is how long a yes of the API server's authorizer is remembered. A no isn't.
const answerTTL = 10 * time.Second

// The headers in which the API server, and another replica, say who the user is.
var (
	nameHeaders   = headerrequest.StaticStringSlice{"X-Remote-User"}
	uidHeaders    = headerrequest.StaticStringSlice{"X-Remote-Uid"}
	groupHeaders  = headerrequest.StaticStringSlice{"X-Remote-Group"}
	extraPrefixes = headerrequest.StaticStringSlice{"X-Remote-Extra-"}
)

// trust knows whose word about users counts: the API server's and the other replicas'. It authenticates requests.
type trust struct {
	authenticator.Request
	frontProxy *dynamiccertificates.ConfigMapCAController
	names      *headerrequest.RequestHeaderAuthRequestController
	replicas   *x509.CertPool
	authority  *x509.Certificate
}

func newTrust(clients kubernetes.Interface, identity *dispatch.Identity) (*trust, error) {
	frontProxy, err := dynamiccertificates.NewDynamicCAFromConfigMapController("front-proxy",
		authenticationNamespace, authenticationConfigMap, "requestheader-client-ca-file", clients)
	if err != nil {
		return nil, fmt.Errorf("read the API server's client authority: %w", err)
	}
	t := &trust{
		frontProxy: frontProxy,
		names: headerrequest.NewRequestHeaderAuthRequestController(authenticationConfigMap, authenticationNamespace, clients,
			"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers",
			"requestheader-extra-headers-prefix", "requestheader-allowed-names"),
		replicas:  x509.NewCertPool(),
		authority: identity.Authority(),
	}
	t.replicas.AddCert(t.authority)
	byAPIServer := headerrequest.NewDynamicVerifyOptionsSecure(t.frontProxy.VerifyOptions,
		headerrequest.StringSliceProviderFunc(t.allowedNames), nameHeaders, uidHeaders, groupHeaders, extraPrefixes)
	byReplica := headerrequest.NewDynamicVerifyOptionsSecure(t.verifyReplicas,
		headerrequest.StaticStringSlice{replicaName}, nameHeaders, uidHeaders, groupHeaders, extraPrefixes)
	t.Request = markReplicas{byAPIServer, byReplica}
	return t, nil
}

// allowedNames are the names in the API server's certificate. An empty list means any name, so that nobody has the right one
// before the list is known.
func (t *trust) allowedNames() []string {
	if t.names.UsernameHeaders() == nil {
		return []string{"\x00"}
	}
	return t.names.AllowedClientNames()
}

func (t *trust) verifyReplicas() (x509.VerifyOptions, bool) {
	return x509.VerifyOptions{Roots: t.replicas, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

// run learns of changes of the API server's certificate until the context ends.
func (t *trust) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { t.frontProxy.Run(ctx, 1) })
	wg.Go(func() { t.names.Run(ctx, 1) })
	wg.Wait()
}

// clientCAs are the authorities of the certificates that clients have to show.
func (t *trust) clientCAs() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(t.frontProxy.CurrentCABundleContent())
	pool.AddCert(t.authority)
	return pool
}

// tlsConfig takes connections of the API server and of other replicas. Nobody else gets through the handshake.
func (s *Server) tlsConfig() *tls.Config {
	config := &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAndVerifyClientCert,
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true,
		GetCertificate:         s.certificateFor,
	}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		current := config.Clone()
		current.GetConfigForClient = nil
		current.ClientCAs = s.trust.clientCAs()
		return current, nil
	}
	return config
}

// certificateFor is what a client is shown: a certificate that somebody else makes is for the API server alone.
func (s *Server) certificateFor(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if s.given != nil && hello.ServerName != replicaName {
		return s.given.GetCertificate(hello)
	}
	return s.certificate.get()
}

// newAuthorizer asks the API server's authorizer. The API server itself, which looks whether the group is served, is let in
// without that.
func newAuthorizer(clients kubernetes.Interface) (authorizer.Authorizer, error) {
	delegated, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: clients.AuthorizationV1(),
		AllowCacheTTL:             answerTTL,
		WebhookRetryBackoff:       &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5},
	}.New()
	if err != nil {
		return nil, fmt.Errorf("make the authorizer: %w", err)
	}
	all, err := authorizerunion.New(
		authorizerunion.NamedAuthorizer{AuthorizerName: "privileged", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		authorizerunion.NamedAuthorizer{AuthorizerName: "delegated", Authorizer: delegated},
	)
	if err != nil {
		return nil, fmt.Errorf("make the authorizer: %w", err)
	}
	return all, nil
}

// markReplicas tells requests that another replica passed on from the API server's.
type markReplicas struct{ apiServer, replica authenticator.Request }

// headerForwarded marks a request that another replica passed on. A client's own is dropped.
const headerForwarded = "Toolcall-Forwarded"

// AuthenticateRequest believes the headers of whoever shows the right certificate.
func (m markReplicas) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	r.Header.Del(headerForwarded)
	if response, ok, err := m.replica.AuthenticateRequest(r); ok && err == nil {
		r.Header.Set(headerForwarded, "true")
		return response, true, nil
	}
	return m.apiServer.AuthenticateRequest(r)
}

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// Over HTTP each user has its own rights, in its own namespace, and its own sessions.
func TestMCPUsersAreApart(t *testing.T) {
	t.Parallel()
	for _, sdk := range []string{"v1", "v2"} {
		t.Run("SDK "+sdk, func(t *testing.T) {
			t.Parallel()
			sp, elsewhere := newSpace(t), newSpace(t)
			more, less := sp.newAccount(t, "more", "bash", "printf"), sp.newAccount(t, "less", "printf")
			stranger := elsewhere.newAccount(t, "stranger", "bash")
			target := sp.overHTTP(t, sdk, "")
			as := func(token, session string) *mcpAgent {
				server := *target.HTTP
				server.Token, server.Session = token, session
				return startAgent(t, mcpTarget{SDK: sdk, HTTP: &server})
			}
			arguments := map[string]any{"command": "echo hello"}
			owner := as(more, "")
			session := owner.connect()
			if got := owner.use("run_command", arguments); got.IsError || !strings.HasPrefix(got.fields().Output, "hello\n") {
				t.Errorf("who may: %+v", got)
			}
			poor := as(less, "")
			poor.connect()
			if got := poor.use("run_command", arguments); !got.IsError || got.fields().Reason != v1alpha1.ReasonAgentNotAllowed {
				t.Errorf("who may create calls, but not use the tool: %+v", got)
			}
			foreign := as(stranger, "")
			foreign.connect()
			got := foreign.use("run_command", arguments)
			if !got.IsError || got.fields().Reason != "Forbidden" || got.fields().Call != "" ||
				!strings.Contains(got.text(), "system:serviceaccount:"+elsewhere.namespace+":stranger has no permission to do this in namespace "+sp.namespace) {
				t.Errorf("who may nothing in that namespace: %+v", got)
			}
			if sdk == "v1" {
				checkForeignSession(t, as(less, session), owner)
			}
		})
	}
}

// checkForeignSession takes up a session that is another user's.
func checkForeignSession(t *testing.T, thief, owner *mcpAgent) {
	t.Helper()
	thief.connect()
	if r := thief.await(thief.order("list", nil)); !strings.Contains(r.Error, "no such session") {
		t.Errorf("with somebody else's session: %+v", r)
	}
	if r := owner.await(owner.order("list", nil)); r.Error != "" {
		t.Errorf("its owner got %s after that", r.Error)
	}
}

// Nobody is served without a token that is meant for the server. Before Kubernetes 1.36, that is one for the API server.
func TestMCPNeedsAToken(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	sp.newAccount(t, "agent")
	other := sp.requestToken(t, "agent", "another").Status.Token
	if sp.passesNoTokens(t) {
		other = sp.requestToken(t, "agent").Status.Token
	}
	for name, token := range map[string]string{"no token": "", "an invented one": "abcdef", "one for another server": other} {
		for _, sdk := range []string{"v1", "v2"} {
			t.Run(name+", SDK "+sdk, func(t *testing.T) {
				t.Parallel()
				a := startAgent(t, sp.overHTTP(t, sdk, token))
				if r := a.await(a.order("connect", nil)); r.Error == "" {
					t.Errorf("connected: %s", r.Result)
				}
			})
		}
	}
	target := sp.overHTTP(t, "v1", "").HTTP
	pem, err := os.ReadFile(target.ca)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer web.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target.URL, strings.NewReader("{}"))
	must(t, err)
	answer, err := web.Do(request)
	must(t, err)
	defer answer.Body.Close()
	want := `Bearer realm="toolcall", resource_metadata="https://toolcall-mcp.toolcall-system.svc/.well-known/oauth-protected-resource/mcp/` + sp.namespace + `"`
	if answer.StatusCode != http.StatusUnauthorized || answer.Header.Get("Www-Authenticate") != want {
		t.Errorf("%s, challenge %q", answer.Status, answer.Header.Get("Www-Authenticate"))
	}
}

// passesNoTokens says whether the installed server acts for its callers by constrained impersonation.
func (sp *space) passesNoTokens(t *testing.T) bool {
	t.Helper()
	server, err := sp.clients.AppsV1().Deployments(operatorNamespace).Get(t.Context(), mcpName, metav1.GetOptions{})
	must(t, err)
	return !slices.Contains(server.Spec.Template.Spec.Containers[0].Args, "--pass-tokens")
}

// The installed server may do nothing for itself, and has no credentials but a token of its account.
func TestMCPServerHasNoRights(t *testing.T) {
	t.Parallel()
	s := cluster(t)
	pods := &corev1.PodList{}
	must(t, s.client.List(t.Context(), pods, client.InNamespace(operatorNamespace), client.MatchingLabels{"app.kubernetes.io/name": mcpName}))
	if len(pods.Items) == 0 {
		t.Fatal("the MCP server isn't installed: `make deploy-mcp` does that")
	}
	for i := range pods.Items {
		for _, volume := range pods.Items[i].Spec.Volumes {
			if (volume.Projected != nil && volume.Name != "api") || (volume.Secret != nil && volume.Secret.SecretName != mcpName+"-tls") {
				t.Errorf("pod %s has volume %s", pods.Items[i].Name, volume.Name)
			}
		}
	}
	user := "system:serviceaccount:" + operatorNamespace + ":" + mcpName
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete"} {
		for _, resource := range []string{"toolcalls", "toolsessions", "executionenvironments", "pods", "secrets", "jobs"} {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, Groups: accountGroups(operatorNamespace),
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: groupOf(resource), Resource: resource, Namespace: operatorNamespace},
			}}
			must(t, s.client.Create(t.Context(), review))
			if review.Status.Allowed {
				t.Errorf("the MCP server's account may %s %s", verb, resource)
			}
		}
	}
}

func groupOf(resource string) string {
	switch resource {
	case "toolcalls", "toolsessions", "executionenvironments":
		return v1alpha1.GroupVersion.Group
	case "jobs":
		return "batch"
	default:
		return ""
	}
}

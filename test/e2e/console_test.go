package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const consoleName = "toolcall-console"

// installedConsole is the console that `make deploy-console` installs, reached as docs/console.md says.
type installedConsole struct {
	url    string
	client *http.Client
}

// forwardConsole opens a way from this machine to the console.
func (s *suite) forwardConsole(t *testing.T) *installedConsole {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	forward := exec.CommandContext(ctx, kubectlPath(), "port-forward", "-n", operatorNamespace, "service/"+consoleName, ":443", "--address=127.0.0.1")
	said, err := forward.StdoutPipe()
	must(t, err)
	stderr := &strings.Builder{}
	forward.Stderr = stderr
	must(t, forward.Start())
	t.Cleanup(func() { cancel(); _ = forward.Wait() })
	lines := bufio.NewReader(said)
	line, err := lines.ReadString('\n')
	port := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindStringSubmatch(line)
	if port == nil {
		cancel()
		_ = forward.Wait()
		t.Fatalf("kubectl port-forward to the console (`make deploy-console` installs it): %v: %s%s", err, line, stderr)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	kept, err := s.clients.CoreV1().Secrets(operatorNamespace).Get(t.Context(), consoleName+"-tls", metav1.GetOptions{})
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(kept.Data[corev1.TLSCertKey])
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &installedConsole{url: "https://localhost:" + port[1], client: &http.Client{Transport: transport}}
}

func (c *installedConsole) get(t *testing.T, path, token string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+path, nil)
	must(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.client.Do(request)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return response, string(body)
}

// The installed console serves its page, and reads with the user's token and no other.
func TestConsoleReadsWithTheUsersToken(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	call := sp.run(t, shell("echo '<script>out</script>'; echo err >&2"))
	viewer, nobody := sp.newAccount(t, "viewer"), sp.newAccount(t, "nobody")
	sp.bind(t, "viewer", rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "toolcall-viewer"},
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: sp.namespace, Name: "viewer"})
	console := sp.forwardConsole(t)
	if response, body := console.get(t, "/", ""); response.StatusCode != http.StatusOK || !strings.Contains(body, "/main.js") ||
		!strings.HasPrefix(response.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self';") {
		t.Errorf("the page: %d %v\n%s", response.StatusCode, response.Header, body)
	}
	list := "/apis/toolcall.dev/v1alpha1/namespaces/" + sp.namespace + "/toolcalls"
	log := "/apis/subresources.toolcall.dev/v1alpha1/namespaces/" + sp.namespace + "/toolcalls/" + call.Name + "/log?stream=stdout"
	for _, path := range []string{list, log} {
		if response, body := console.get(t, path, ""); response.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d %s", path, response.StatusCode, body)
		}
		if response, body := console.get(t, path, nobody); response.StatusCode != http.StatusForbidden {
			t.Errorf("%s without rights: %d %s", path, response.StatusCode, body)
		}
	}
	sp.awaitTrue(t, "the viewer's binding in force", func(context.Context) (bool, error) {
		response, _ := console.get(t, list, viewer)
		return response.StatusCode == http.StatusOK, nil
	})
	_, body := console.get(t, list, viewer)
	table := &metav1.Table{}
	if err := json.Unmarshal([]byte(body), table); err != nil || len(table.Rows) != 1 || !strings.Contains(body, call.Name) {
		t.Errorf("the calls: %v: %s", err, body)
	}
	response, body := console.get(t, log, viewer)
	if body != "<script>out</script>\n" || response.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("the output: %q, %v", body, response.Header)
	}
}

// The console's pods have no token, so that nobody who takes one over has rights.
func TestConsoleHasNoCredentials(t *testing.T) {
	t.Parallel()
	s := cluster(t)
	pods := &corev1.PodList{}
	must(t, s.client.List(t.Context(), pods, client.InNamespace(operatorNamespace), client.MatchingLabels{"app.kubernetes.io/name": consoleName}))
	if len(pods.Items) == 0 {
		t.Fatal("there is no console: run `make deploy-console`")
	}
	for _, pod := range pods.Items {
		for _, volume := range pod.Spec.Volumes {
			if volume.Projected != nil || volume.Secret != nil && volume.Secret.SecretName != consoleName+"-tls" {
				t.Errorf("pod %s has the volume %s", pod.Name, volume.Name)
			}
		}
	}
}

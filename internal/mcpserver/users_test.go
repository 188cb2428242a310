package mcpserver

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/internal/testing/apiservertest"
)

// userPrefix starts the tokens of users that aren't ServiceAccounts.
const userPrefix = "user-"

// userToken returns a token for the MCP server, whose user it says.
func userToken(user authenticationv1.UserInfo) string {
	raw, err := json.Marshal(user)
	if err != nil {
		panic(err)
	}
	return userPrefix + base64.RawURLEncoding.EncodeToString(raw)
}

// serveUsers is a webhook for tokens, as identity providers have it.
func serveUsers(w http.ResponseWriter, r *http.Request) {
	review := &authenticationv1.TokenReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if encoded, ok := strings.CutPrefix(review.Spec.Token, userPrefix); ok {
		raw, err := base64.RawURLEncoding.DecodeString(encoded)
		review.Status.Authenticated = errors.Join(err, json.Unmarshal(raw, &review.Status.User)) == nil
		review.Status.Audiences = []string{defaultAudience}
	}
	_ = json.NewEncoder(w).Encode(review)
}

// addUsers has the suite's API server ask that webhook.
func addUsers(s *apiservertest.Suite) {
	configure, teardown := s.Configure, s.Teardown
	web := httptest.NewUnstartedServer(http.HandlerFunc(serveUsers))
	s.Teardown = func() error { web.Close(); return teardown() }
	s.Configure = func(env *envtest.Environment, folder string) error {
		web.Start()
		path := filepath.Join(folder, "users.yaml")
		env.ControlPlane.GetAPIServer().Configure().
			Append("authentication-token-webhook-config-file", path).Append("authentication-token-webhook-version", "v1")
		return errors.Join(configure(env, folder), os.WriteFile(path, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters: [{name: users, cluster: {server: %q}}]
users: [{name: apiserver}]
contexts: [{name: users, context: {cluster: users, user: apiserver}}]
current-context: users
`, web.URL), 0o600))
	}
}

package operator

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// An API server that answers reviews, or refuses to.
func reviewsBy(t *testing.T, answer func(authorizationv1.ResourceAttributes) (allowed bool, code int)) authorizationv1client.SelfSubjectAccessReviewInterface {
	t.Helper()
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &authorizationv1.SelfSubjectAccessReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil || review.Spec.ResourceAttributes == nil {
			t.Errorf("asked %+v: %v", review.Spec, err)
			return
		}
		allowed, code := answer(*review.Spec.ResourceAttributes)
		review.Status.Allowed = allowed
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(listener.Close)
	clients, err := kubernetes.NewForConfig(&rest.Config{Host: listener.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return clients.AuthorizationV1().SelfSubjectAccessReviews()
}

func TestTheStartSaysWhichRightsAreLacking(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		namespaces []string
		lacks      func(authorizationv1.ResourceAttributes) bool
		want       string
	}{
		"none": {[]string{"a"}, func(authorizationv1.ResourceAttributes) bool { return false }, ""},
		"one in one of two namespaces": {
			[]string{"a", "b"},
			func(r authorizationv1.ResourceAttributes) bool {
				return r.Namespace == "b" && r.Resource == "toolcalls" && r.Subresource == "status"
			},
			"in namespace b: patch toolcalls/status.toolcall.dev",
		},
		"what is never in a namespace": {
			[]string{"a"},
			func(r authorizationv1.ResourceAttributes) bool { return r.Resource == "subjectaccessreviews" },
			"in the whole cluster: create subjectaccessreviews.authorization.k8s.io",
		},
		"one in every namespace": {
			nil,
			func(r authorizationv1.ResourceAttributes) bool { return r.Resource == "secrets" && r.Namespace == "" },
			"in the whole cluster: create secrets",
		},
		"the operator's own": {
			[]string{"a"},
			func(r authorizationv1.ResourceAttributes) bool {
				return r.Namespace == "home" && r.Resource == "leases" && r.Verb == "create"
			},
			"in namespace home: create leases.coordination.k8s.io",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reviews := reviewsBy(t, func(r authorizationv1.ResourceAttributes) (bool, int) { return !tc.lacks(r), http.StatusCreated })
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			err := awaitRights(ctx, reviews, &Options{Namespaces: tc.namespaces, Namespace: "home"}, logr.Discard())
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.HasSuffix(err.Error(), ": "+tc.want)):
				t.Errorf("got %v, want only %q in it", err, tc.want)
			}
		})
	}
}

// Every authenticated account may ask for its own rights, unless the cluster's administrator took that away.
func TestTheStartGoesOnWhereRightsCannotBeAskedFor(t *testing.T) {
	t.Parallel()
	reviews := reviewsBy(t, func(authorizationv1.ResourceAttributes) (bool, int) { return false, http.StatusForbidden })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := awaitRights(ctx, reviews, &Options{Namespace: "home"}, logr.Discard()); err != nil {
		t.Error(err)
	}
}

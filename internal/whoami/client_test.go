package whoami

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// server is an API server that compares spec.requestedBy with its user, or doesn't. The real one is asked in test/api.
type server struct {
	client.WithWatch
	user      authenticationv1.UserInfo
	checks    bool
	reviewErr error

	creates, reviews int
	sent             *v1alpha1.Requester
}

func forbidden(why string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "toolcall.dev", Resource: "toolcalls"}, "c", errors.New(why))
}

func (s *server) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	s.creates++
	field := requesterOf(object)
	if field == nil {
		return forbidden(refusal)
	}
	s.sent = *field
	if s.checks && !cmp.Equal(*field, Requester(&s.user)) {
		return forbidden("ValidatingAdmissionPolicy 'toolcall-identity' with binding 'toolcall-identity' denied request: " + refusal + ".")
	}
	return nil
}

type reviewer struct{ *server }

func (r reviewer) Create(context.Context, *authenticationv1.SelfSubjectReview, metav1.CreateOptions) (*authenticationv1.SelfSubjectReview, error) {
	r.reviews++
	return &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: r.user}}, r.reviewErr
}

func alice(credential string) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{
		Username: "alice", UID: "1", Groups: []string{"b", "a"}, Extra: map[string]authenticationv1.ExtraValue{"credential": {credential}},
	}
}

func TestWhoAsksIsSaidWhereTheClusterAsksForIt(t *testing.T) {
	t.Parallel()
	s := &server{user: alice("1"), checks: true}
	c := NewClient(s, reviewer{s})
	for i, want := range []struct{ creates, reviews int }{{2, 1}, {3, 1}} {
		for _, object := range []client.Object{&v1alpha1.ToolCall{}, &v1alpha1.ToolSession{}}[i : i+1] {
			if err := c.Create(t.Context(), object); err != nil || s.creates != want.creates || s.reviews != want.reviews {
				t.Errorf("%T: %v after %d creates, %d reviews", object, err, s.creates, s.reviews)
			}
		}
	}
	s.user = alice("2")
	if err := c.Create(t.Context(), &v1alpha1.ToolCall{}); err != nil || s.reviews != 2 {
		t.Errorf("after the credentials have changed: %v, %d reviews", err, s.reviews)
	}
}

func TestNothingIsAskedWhereAdmissionSaysWhoAsks(t *testing.T) {
	t.Parallel()
	s := &server{user: alice("1")}
	call := &v1alpha1.ToolCall{Spec: v1alpha1.ToolCallSpec{RequestedBy: &v1alpha1.Requester{Username: "mallory"}}}
	if err := NewClient(s, reviewer{s}).Create(t.Context(), call); err != nil || s.creates != 1 || s.reviews != 0 || s.sent != nil {
		t.Errorf("%v after %d creates, %d reviews, sent %v", err, s.creates, s.reviews, s.sent)
	}
}

func TestWhatIsRefusedStaysRefused(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	s := &server{user: alice("1"), checks: true, reviewErr: down}
	if err := NewClient(s, reviewer{s}).Create(t.Context(), &v1alpha1.ToolCall{}); !apierrors.IsForbidden(err) || !errors.Is(err, down) {
		t.Errorf("without an answer: %v", err)
	}
	// The request has another user than the review: a proxy between them may change it.
	s = &server{user: alice("1"), checks: true}
	other := &server{user: alice("2")}
	if err := NewClient(s, reviewer{other}).Create(t.Context(), &v1alpha1.ToolCall{}); !apierrors.IsForbidden(err) || s.creates != 2 {
		t.Errorf("with another's answer: %v after %d creates", err, s.creates)
	}
	s = &server{user: alice("1")}
	err := NewClient(s, reviewer{s}).Create(t.Context(), &corev1.Pod{})
	if err == nil || !strings.Contains(err.Error(), refusal) || s.creates != 1 || s.reviews != 0 {
		t.Errorf("another kind: %v after %d creates, %d reviews", err, s.creates, s.reviews)
	}
	if isAskedFor(forbidden("user cannot create resource")) || isAskedFor(errors.New(refusal)) || isAskedFor(nil) {
		t.Error("another refusal is taken for this one")
	}
}

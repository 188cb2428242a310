package access

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"toolcall.dev/operator/api/v1alpha1"
)

// authorizer answers reviews, and remembers what it was asked.
type authorizer struct {
	asked  []authorizationv1.SubjectAccessReviewSpec
	answer authorizationv1.SubjectAccessReviewStatus
	err    error
}

// Create implements SubjectAccessReviewInterface.
func (a *authorizer) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	a.asked = append(a.asked, review.Spec)
	if a.err != nil {
		return nil, a.err
	}
	return &authorizationv1.SubjectAccessReview{Spec: review.Spec, Status: a.answer}, nil
}

func newReviews(a *authorizer) (*Reviews, *clocktesting.FakePassiveClock) {
	clock := clocktesting.NewFakePassiveClock(created)
	return NewReviews(a, clock), clock
}

func alice() *v1alpha1.Requester {
	return &v1alpha1.Requester{Username: "alice", UID: "u", Groups: []string{"g", "h"}, Extra: map[string]v1alpha1.ExtraValue{"scopes": {"a", "b"}}}
}

func TestTheAuthorizerIsAskedForAllOfTheRequester(t *testing.T) {
	t.Parallel()
	a := &authorizer{answer: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
	reviews, _ := newReviews(a)
	if may, err := reviews.MayUse(context.Background(), alice(), "ns", "bash"); !may || err != nil {
		t.Fatalf("%t, %v", may, err)
	}
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "alice", UID: "u", Groups: []string{"g", "h"}, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"a", "b"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "ns", Verb: "use", Group: "toolcall.dev", Version: "v1alpha1", Resource: "tools", Name: "bash"},
	}
	if diff := cmp.Diff([]authorizationv1.SubjectAccessReviewSpec{want}, a.asked); diff != "" {
		t.Error(diff)
	}
}

func TestTheAuthorizerIsAskedForTheSession(t *testing.T) {
	t.Parallel()
	a := &authorizer{answer: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
	reviews, _ := newReviews(a)
	if may, err := reviews.MayUseSession(context.Background(), alice(), "ns", "work"); !may || err != nil {
		t.Fatalf("%t, %v", may, err)
	}
	want := &authorizationv1.ResourceAttributes{Namespace: "ns", Verb: "use", Group: "toolcall.dev", Version: "v1alpha1", Resource: "toolsessions", Name: "work"}
	if diff := cmp.Diff(want, a.asked[0].ResourceAttributes); diff != "" {
		t.Error(diff)
	}
	// The right to a tool of that name is another one.
	a.answer.Allowed = false
	if may, err := reviews.MayUse(context.Background(), alice(), "ns", "work"); may || err != nil {
		t.Errorf("the tool of the session's name: %t, %v", may, err)
	}
	a.err = errors.New("down")
	if _, err := reviews.MayUseSession(context.Background(), alice(), "ns", "other"); err == nil || !strings.Contains(err.Error(), `may use toolsession "other"`) {
		t.Errorf("got %v", err)
	}
}

func TestAYesIsRememberedForTenSeconds(t *testing.T) {
	t.Parallel()
	a := &authorizer{answer: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
	reviews, clock := newReviews(a)
	for _, step := range []struct {
		after time.Duration
		asked int
	}{{0, 1}, {0, 1}, {9 * time.Second, 1}, {10*time.Second + 1, 2}, {19 * time.Second, 2}, {time.Minute, 3}} {
		clock.SetTime(created.Add(step.after))
		if may, err := reviews.MayUse(context.Background(), alice(), "ns", "bash"); !may || err != nil {
			t.Fatalf("%t, %v", may, err)
		}
		if len(a.asked) != step.asked {
			t.Errorf("after %s: asked %d times, want %d", step.after, len(a.asked), step.asked)
		}
	}
	// A right that was taken away counts after that.
	a.answer.Allowed = false
	clock.SetTime(created.Add(time.Hour))
	if may, err := reviews.MayUse(context.Background(), alice(), "ns", "bash"); may || err != nil {
		t.Errorf("%t, %v", may, err)
	}
}

func TestANoAndAnErrorAreNotRemembered(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for name, tc := range map[string]struct {
		first authorizer
		err   string
	}{
		"a no":                   {authorizer{}, ""},
		"a no of one authorizer": {authorizer{answer: authorizationv1.SubjectAccessReviewStatus{Denied: true}}, ""},
		"no answer":              {authorizer{err: down}, `ask whether "alice" may use tool "bash": down`},
		"a broken authorizer":    {authorizer{answer: authorizationv1.SubjectAccessReviewStatus{EvaluationError: "broken"}}, `authorizer failed: broken`},
	} {
		a := tc.first
		reviews, _ := newReviews(&a)
		may, err := reviews.MayUse(context.Background(), alice(), "ns", "bash")
		if may || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %t, %v", name, may, err)
		}
		// A right that was just given counts at once.
		a.answer, a.err = authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil
		if may, err := reviews.MayUse(context.Background(), alice(), "ns", "bash"); !may || err != nil {
			t.Errorf("after %s: %t, %v", name, may, err)
		}
	}
}

func TestAYesIsForTheVeryQuestion(t *testing.T) {
	t.Parallel()
	type question struct {
		who             *v1alpha1.Requester
		namespace, tool string
	}
	as := func(change func(*v1alpha1.Requester)) *v1alpha1.Requester {
		who := alice()
		change(who)
		return who
	}
	for name, other := range map[string]question{
		"another user":              {as(func(r *v1alpha1.Requester) { r.Username = "bob" }), "ns", "bash"},
		"another UID":               {as(func(r *v1alpha1.Requester) { r.UID = "x" }), "ns", "bash"},
		"a group more":              {as(func(r *v1alpha1.Requester) { r.Groups = append(r.Groups, "admins") }), "ns", "bash"},
		"groups that run together":  {as(func(r *v1alpha1.Requester) { r.Groups = []string{"g,h"} }), "ns", "bash"},
		"another order of groups":   {as(func(r *v1alpha1.Requester) { slices.Reverse(r.Groups) }), "ns", "bash"},
		"no groups":                 {as(func(r *v1alpha1.Requester) { r.Groups = nil }), "ns", "bash"},
		"another scope":             {as(func(r *v1alpha1.Requester) { r.Extra["scopes"] = v1alpha1.ExtraValue{"a"} }), "ns", "bash"},
		"no scopes":                 {as(func(r *v1alpha1.Requester) { r.Extra = nil }), "ns", "bash"},
		"another namespace":         {alice(), "other", "bash"},
		"another tool":              {alice(), "ns", "python"},
		"names that run together":   {as(func(r *v1alpha1.Requester) { r.Username = `alice","uid":"u` }), "ns", "bash"},
		"the tool in the namespace": {alice(), "nsbash", ""},
	} {
		a := &authorizer{answer: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
		reviews, _ := newReviews(a)
		if may, err := reviews.MayUse(context.Background(), alice(), "ns", "bash"); !may || err != nil {
			t.Fatalf("%t, %v", may, err)
		}
		a.answer.Allowed = false
		if may, err := reviews.MayUse(context.Background(), other.who, other.namespace, other.tool); may || err != nil || len(a.asked) != 2 {
			t.Errorf("%s: %t, %v", name, may, err)
		}
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	a := &authorizer{answer: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
	reviews, _ := newReviews(a)
	for i := range answerSize + 100 {
		who := &v1alpha1.Requester{Username: strings.Repeat("x", i%7) + time.Duration(i).String()}
		if _, err := reviews.MayUse(context.Background(), who, "ns", "bash"); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(reviews.answers.Keys()); n > answerSize {
		t.Errorf("%d answers are kept", n)
	}
}

// silent is an authorizer that never answers.
type silent struct{}

// Create implements SubjectAccessReviewInterface.
func (s *silent) Create(ctx context.Context, _ *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestAnAuthorizerThatDoesNotAnswerIsWaitedForSoLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reviews := NewReviews(&silent{}, clocktesting.NewFakePassiveClock(created))
		began := time.Now()
		may, err := reviews.MayUse(t.Context(), alice(), "ns", "bash")
		if took := time.Since(began); may || !errors.Is(err, context.DeadlineExceeded) || took != 15*time.Second {
			t.Errorf("%t, %v after %s", may, err, took)
		}
	})
}

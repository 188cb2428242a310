package decide_test

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"toolcall.dev/operator/internal/decide"
)

func TestAnAuthorizerThatFailedHasNotSaidNo(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer     authorizationv1.SubjectAccessReviewStatus
		may, fails bool
	}{
		"yes": {answer: authorizationv1.SubjectAccessReviewStatus{Allowed: true}, may: true},
		"yes, though one authorizer failed": {
			answer: authorizationv1.SubjectAccessReviewStatus{Allowed: true, EvaluationError: "x"}, may: true,
		},
		"nobody said yes":          {answer: authorizationv1.SubjectAccessReviewStatus{Reason: "RBAC: role not found"}},
		"no":                       {answer: authorizationv1.SubjectAccessReviewStatus{Denied: true}},
		"one authorizer failed":    {answer: authorizationv1.SubjectAccessReviewStatus{EvaluationError: "x"}, fails: true},
		"one failed and denied so": {answer: authorizationv1.SubjectAccessReviewStatus{Denied: true, EvaluationError: "x"}, fails: true},
	} {
		if may, err := decide.MayUse(&tc.answer); may != tc.may || (err != nil) != tc.fails {
			t.Errorf("%s: may %t, %v", name, may, err)
		}
	}
}

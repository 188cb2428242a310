package decide

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// MayUse reads the answer to an access review. A no that comes with an evaluation error is no answer, as it is none to
// the API server itself: an authorizer failed that might have said something else.
func MayUse(answer *authorizationv1.SubjectAccessReviewStatus) (bool, error) {
	if !answer.Allowed && answer.EvaluationError != "" {
		return false, fmt.Errorf("the API server's authorizer failed: %s", answer.EvaluationError)
	}
	return answer.Allowed, nil
}

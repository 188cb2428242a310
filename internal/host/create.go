package host

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
)

// CreateCredential gives the pod of a Job its token. Created again, the token is the same.
func CreateCredential(ctx context.Context, c client.Client, identity *dispatch.Identity, job *batchv1.Job) error {
	token := identity.Token(job.Namespace, job.Name, string(job.UID))
	err := c.Create(ctx, jobspec.Credential(job, token), client.DisableReadYourWritesConsistency)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the Secret with the token of Job %s: %w", job.Name, err)
	}
	return nil
}

// IsTaken says that somebody else has the name of a Job which is there already. Otherwise a pass made it whose answer was lost, and the
// cache is behind: the next pass goes on with that.
func IsTaken(ctx context.Context, objects apicache.Reader, job *batchv1.Job, isOurs func(*batchv1.Job) bool) (bool, error) {
	there, err := objects.LiveJob(ctx, client.ObjectKeyFromObject(job))
	if err != nil || there == nil {
		return false, err
	}
	// The cache never shows one without the label.
	return !isOurs(there) || there.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy, nil
}

// WhyNotCreated is what waits for something that the API server doesn't create at the moment.
func WhyNotCreated(ctx context.Context, what string, cause error) (reason, message string) {
	if quota := apicache.FullQuota(cause.Error()); quota != "" {
		return v1alpha1.ReasonQuotaExceeded, what + " waits: " + quota
	}
	ctrl.LoggerFrom(ctx).Error(cause, "There is no pod yet", "lacks", what)
	return v1alpha1.ReasonNotStarted, what + " can't be created yet; the operator tries again: " + cause.Error()
}

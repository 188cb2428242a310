package host

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

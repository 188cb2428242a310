package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
)

const (
	// apiTimeout is how long the operator waits for the API server. For what is installed beside it, it waits as long as that takes.
	apiTimeout = 5 * time.Minute
	// awaitPoll is how often it asks.
	awaitPoll = 500 * time.Millisecond
)

// unsupportedError says why the operator can't work in this cluster, however long it waits.
type unsupportedError struct{ error }

func isUnsupported(err error) bool {
	_, is := errors.AsType[*unsupportedError](err)
	return is
}

// await runs a check until it succeeds, finds the cluster unsupported or the context ends, and logs why it waits. When the context ends,
// the error is the check's last one: it says more. A check that this end cut short doesn't count, unless it is the only one.
func await(ctx context.Context, log logr.Logger, what string, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, awaitPoll, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if isUnsupported(err) {
			last = err
			return false, err
		}
		if err != nil && (last == nil || last.Error() != err.Error()) {
			log.Info("Waiting for "+what, "reason", err.Error())
		}
		// A request fails at the deadline, shortly before the context ends.
		deadline, hasDeadline := ctx.Deadline()
		if last == nil || ctx.Err() == nil && (!hasDeadline || time.Now().Before(deadline)) {
			last = err
		}
		return err == nil, nil
	})
	if err != nil && last != nil {
		return last
	}
	return err
}

// awaitAPI waits for an API server that can't be reached now, or that has only just started and allows nobody
// anything yet, as after an outage in which the lease was lost. An operator that ends instead is started by the
// kubelet at ever longer intervals, and would be back minutes after the API server.
func awaitAPI(ctx context.Context, server discovery.ServerVersionInterface, log logr.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	err := await(ctx, log, "the API server", func(context.Context) error {
		_, err := server.ServerVersion()
		return err
	})
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	return nil
}

// awaitService waits for the Service that leads runners to whichever replica is the leader.
func awaitService(ctx context.Context, clients kubernetes.Interface, o *Options, log logr.Logger) (service *corev1.Service, err error) {
	err = await(ctx, log, "the Service for runners", func(ctx context.Context) (err error) {
		service, err = clients.CoreV1().Services(o.Namespace).Get(ctx, dispatchService, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("get Service %s/%s, which runners need: %w", o.Namespace, dispatchService, err)
	}
	return service, nil
}

// kinds are those that the operator caches, by the names of their resources. The cache can't be set up while one is missing.
var kinds = []struct {
	resource string
	// isCluster says that the kind has no namespaces.
	isCluster bool
	fields    fields.Selector
}{
	{resource: "executionpolicies", isCluster: true},
	{resource: "executionenvironments"},
	{resource: "skills"},
	{resource: "toolbudgets"},
	{resource: "toolsessions"},
	{resource: "toolcallapprovals"},
	{resource: "toolcalls", fields: apicache.InFlight()},
}

// awaitKinds waits until the cluster serves each kind in the way that this operator reads it.
func awaitKinds(ctx context.Context, server rest.Interface, namespaces []string, log logr.Logger) error {
	return await(ctx, log, "the CustomResourceDefinitions", func(ctx context.Context) error {
		for _, kind := range kinds {
			path := "/apis/" + v1alpha1.GroupVersion.String()
			if len(namespaces) > 0 && !kind.isCluster {
				path += "/namespaces/" + namespaces[0]
			}
			request := server.Get().AbsPath(path, kind.resource).Param("limit", "1")
			if kind.fields != nil {
				request.Param("fieldSelector", kind.fields.String())
			}
			if err := request.Do(ctx).Error(); err != nil {
				return explainKind(kind.resource, err)
			}
		}
		return nil
	})
}

// explainKind says what to do about a kind that can't be listed.
func explainKind(resource string, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the cluster doesn't serve %s of %s: install the CustomResourceDefinitions of this release (config/crd): %w", resource, v1alpha1.GroupVersion, err)
	case apierrors.IsBadRequest(err):
		return fmt.Errorf("the cluster's CustomResourceDefinitions are of an earlier release, and %s can't be selected as the operator does: install the CustomResourceDefinitions of this release (config/crd) before its operator: %w", resource, err)
	}
	return fmt.Errorf("list %s: %w", resource, err)
}

// awaitRights waits until the operator's account has every right that it needs, in each namespace to work in. Caches
// would retry forever without one, and calls would stay as they are.
func awaitRights(ctx context.Context, reviews authorizationv1client.SelfSubjectAccessReviewInterface, o *Options, log logr.Logger) error {
	needed, err := neededRights(o.Namespaces, o.Namespace)
	if err != nil {
		return err
	}
	return await(ctx, log, "the operator's rights", func(ctx context.Context) error {
		lacking, err := lackingRights(ctx, reviews, needed)
		switch {
		case apierrors.IsForbidden(err):
			log.Info("Can't ask which rights the operator has; going on", "reason", err.Error())
			return nil
		case err == nil && len(lacking) > 0:
			return fmt.Errorf("the operator's account lacks rights that config/rbac/role.yaml lists: %s", describeRights(lacking))
		}
		return err
	})
}

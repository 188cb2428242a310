package e2e

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/client-go/discovery"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/whoami"
)

// sayingWho fills spec.requestedBy in as clients have to on a cluster without MutatingAdmissionPolicy. What a test sets
// itself stays.
type sayingWho struct {
	client.WithWatch
	filled *whoami.Client
}

func withRequester(c client.WithWatch, config *rest.Config) (client.WithWatch, error) {
	users, err := authenticationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client that asks who it is: %w", err)
	}
	return &sayingWho{WithWatch: c, filled: whoami.NewClient(c, users.SelfSubjectReviews())}, nil
}

// fillsRequester reports whether the cluster has MutatingAdmissionPolicies.
func fillsRequester(config *rest.Config) (bool, error) {
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return false, fmt.Errorf("make the client that asks what is served: %w", err)
	}
	resources, err := served.ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	if err != nil {
		return false, fmt.Errorf("ask which admission policies are served: %w", err)
	}
	return slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == "mutatingadmissionpolicies" }), nil
}

func (c *sayingWho) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	switch o := object.(type) {
	case *v1alpha1.ToolCall:
		if o.Spec.RequestedBy == nil {
			return c.filled.Create(ctx, object, opts...)
		}
	case *v1alpha1.ToolSession:
		if o.Spec.RequestedBy == nil {
			return c.filled.Create(ctx, object, opts...)
		}
	}
	return c.WithWatch.Create(ctx, object, opts...)
}

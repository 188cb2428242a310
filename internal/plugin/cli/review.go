package cli

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
	"toolcall.dev/operator/internal/follow"
)

// Review asks the operator whether a call would run.
func (c *Cluster) Review(ctx context.Context, spec subresourcesv1alpha1.ToolCallReviewSpec) (*subresourcesv1alpha1.ToolCallReviewStatus, error) {
	review := &subresourcesv1alpha1.ToolCallReview{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace}, Spec: spec}
	err := c.Client.Create(ctx, review, client.FieldValidation(metav1.FieldValidationStrict))
	switch {
	case err == nil:
		return &review.Status, nil
	case follow.NotInstalled(err):
		return nil, fmt.Errorf("review the call: this cluster's operator answers no ToolCallReviews: it is an older one, or its aggregated API is turned off: %w", err)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("review the call: the ClusterRole toolcall-user grants permission to create toolcallreviews and toolcalls: %w", err)
	default:
		return nil, fmt.Errorf("review the call: %w", err)
	}
}

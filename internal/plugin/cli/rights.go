package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/guards"
)

// maxAsked bounds how many tools are asked for one by one.
const maxAsked = 200

// Rights are the tools that the user may use in a namespace.
type Rights struct {
	// AnyTool says that the user may use every tool.
	AnyTool bool `json:"anyTool"`
	// Names are the tools, sorted.
	Names []string `json:"names"`
	// Complete is false if the API server can't list all rights: tools that were asked for one by one are among the names, and
	// the user may be able to use others.
	Complete bool `json:"complete"`
}

// May reports whether the user may use a tool, as far as it is known.
func (r *Rights) May(tool string) bool { return r.AnyTool || slices.Contains(r.Names, tool) }

// Programs are the names without those of the file tools, which start nothing.
func (r *Rights) Programs() []string {
	return slices.DeleteFunc(slices.Clone(r.Names), func(name string) bool { return name == guards.ToolFileRead || name == guards.ToolFileWrite })
}

// ToolRights asks the API server for the rights of the user. Where an authorizer can't list them, it asks for the candidates one
// by one.
func (c *Cluster) ToolRights(ctx context.Context, candidates []string) (*Rights, error) {
	rights := &Rights{Names: []string{}}
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: c.Namespace}}
	err := c.Client.Create(ctx, review)
	if err == nil {
		rights.take(&review.Status)
	}
	if err == nil && (rights.Complete || rights.AnyTool) {
		return rights, nil
	}
	if len(candidates) > maxAsked {
		candidates = candidates[:maxAsked]
	}
	for _, tool := range candidates {
		may, err := c.mayUse(ctx, tool)
		if err != nil {
			return nil, err
		}
		if may && !slices.Contains(rights.Names, tool) {
			rights.Names = append(rights.Names, tool)
		}
	}
	slices.Sort(rights.Names)
	return rights, nil
}

// take reads the rules that grant the use of tools.
func (r *Rights) take(status *authorizationv1.SubjectRulesReviewStatus) {
	r.Complete = !status.Incomplete
	for i := range status.ResourceRules {
		rule := &status.ResourceRules[i]
		if !matchesRule(rule.Verbs, "use") || !matchesRule(rule.APIGroups, v1alpha1.GroupVersion.Group) || !matchesRule(rule.Resources, "tools") {
			continue
		}
		if len(rule.ResourceNames) == 0 {
			r.AnyTool = true
		}
		r.Names = append(r.Names, rule.ResourceNames...)
	}
	slices.Sort(r.Names)
	r.Names = slices.Compact(r.Names)
}

// matchesRule reports whether a list of a rule has a value, or all values.
func matchesRule(list []string, value string) bool {
	return slices.Contains(list, value) || slices.Contains(list, "*")
}

// Text lists the tools for people.
func (r *Rights) Text() string {
	switch {
	case r.AnyTool:
		return "any tool"
	case len(r.Names) == 0:
		return "none"
	default:
		return strings.Join(r.Names, ", ")
	}
}

// mayUse asks the API server, as the operator does, whether the user has permission to use a tool.
func (c *Cluster) mayUse(ctx context.Context, tool string) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: c.Namespace, Verb: "use", Group: v1alpha1.GroupVersion.Group,
			Version: v1alpha1.GroupVersion.Version, Resource: "tools", Name: tool,
		}},
	}
	if err := c.Client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("check the permission to use the tool %q: %w", tool, err)
	}
	return decide.ReviewAnswer(&review.Status)
}

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

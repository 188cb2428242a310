package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
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
	review, err := c.reviews.SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: c.Namespace},
	}, metav1.CreateOptions{})
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
		may, err := c.MayUse(ctx, tool)
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

// MayUse asks the API server, as the operator does, whether the user has permission to use a tool.
func (c *Cluster) MayUse(ctx context.Context, tool string) (bool, error) {
	may, err := c.AskUse(ctx, "tools", tool)
	if err != nil {
		return false, fmt.Errorf("check the permission to use the tool %q: %w", tool, err)
	}
	return may, nil
}

// AskUse asks the API server whether the user has the verb "use" on an object of the project.
func (c *Cluster) AskUse(ctx context.Context, resource, name string) (bool, error) {
	review, err := c.reviews.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: c.Namespace, Verb: "use", Group: v1alpha1.GroupVersion.Group,
			Version: v1alpha1.GroupVersion.Version, Resource: resource, Name: name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return decide.ReviewAnswer(&review.Status)
}

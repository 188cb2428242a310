package plugin

import (
	"context"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/guards"
)

// maxAsked bounds how many tools are asked for one by one.
const maxAsked = 200

// toolRights are the tools that the user may use in a namespace.
type toolRights struct {
	// AnyTool says that the user may use every tool.
	AnyTool bool `json:"anyTool"`
	// Names are the tools, sorted.
	Names []string `json:"names"`
	// Complete is false if the API server can't list all rights: tools that were asked for one by one are among the names, and
	// the user may be able to use others.
	Complete bool `json:"complete"`
}

// may reports whether the user may use a tool, as far as it is known.
func (r *toolRights) may(tool string) bool { return r.AnyTool || slices.Contains(r.Names, tool) }

// programs are the names without those of the file tools, which start nothing.
func (r *toolRights) programs() []string {
	return slices.DeleteFunc(slices.Clone(r.Names), func(name string) bool { return name == guards.ToolFileRead || name == guards.ToolFileWrite })
}

// toolRights asks the API server for the rights of the user. Where an authorizer can't list them, it asks for the candidates one
// by one.
func (c *cluster) toolRights(ctx context.Context, candidates []string) (*toolRights, error) {
	rights := &toolRights{Names: []string{}}
	review, err := c.reviews.SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: c.namespace},
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
func (r *toolRights) take(status *authorizationv1.SubjectRulesReviewStatus) {
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

// text lists the tools for people.
func (r *toolRights) text() string {
	switch {
	case r.AnyTool:
		return "any tool"
	case len(r.Names) == 0:
		return "none"
	default:
		return strings.Join(r.Names, ", ")
	}
}

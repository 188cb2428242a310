package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// policyReader reads policies as the caller, each once.
type policyReader struct {
	client client.Client
	read   map[string]policyAnswer
}

type policyAnswer struct {
	policy *v1alpha1.ExecutionPolicy
	err    error
}

func newPolicyReader(c *cluster) *policyReader {
	return &policyReader{client: c.client, read: map[string]policyAnswer{}}
}

// of is the policy that an environment's calls are held to; nil for the built-in defaults.
func (r *policyReader) of(ctx context.Context, env *v1alpha1.ExecutionEnvironment) (*v1alpha1.ExecutionPolicy, error) {
	name := env.Spec.PolicyName()
	if have, ok := r.read[name]; ok {
		return have.policy, have.err
	}
	policy, err := r.get(ctx, name)
	r.read[name] = policyAnswer{policy, err}
	return policy, err
}

func (r *policyReader) get(ctx context.Context, name string) (*v1alpha1.ExecutionPolicy, error) {
	if name == "" {
		list := &v1alpha1.ExecutionPolicyList{}
		if err := r.client.List(ctx, list); err != nil {
			return nil, rightError("list executionpolicies", err)
		}
		return decide.DefaultPolicy(slices.DeleteFunc(list.Items, func(p v1alpha1.ExecutionPolicy) bool {
			return p.Annotations[v1alpha1.AnnotationDefaultPolicy] != "true"
		}))
	}
	policy := &v1alpha1.ExecutionPolicy{}
	err := r.client.Get(ctx, types.NamespacedName{Name: name}, policy)
	if apierrors.IsNotFound(err) {
		return nil, decide.NoPolicy(name)
	}
	if err != nil {
		return nil, rightError("get executionpolicies", err)
	}
	return policy, nil
}

// rightError names the right that is missing. Policies belong to the whole cluster, so a role in a namespace can't
// give it.
func rightError(right string, err error) error {
	if apierrors.IsForbidden(err) && strings.Contains(right, "executionpolicies") {
		return fmt.Errorf("you lack the right to %s in the cluster: bind the ClusterRole toolcall-policy-viewer with a ClusterRoleBinding: %w", right, err)
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("you lack the right to %s in this namespace: the ClusterRole toolcall-user has it: %w", right, err)
	}
	return fmt.Errorf("%s: %w", right, err)
}

// allows says in a few words what an environment's policy lets calls run.
func (r *policyReader) allows(ctx context.Context, env *v1alpha1.ExecutionEnvironment) string {
	policy, err := r.of(ctx, env)
	switch {
	case apierrors.IsForbidden(err):
		return "(may not read policies)"
	case err != nil:
		return "nothing: " + err.Error()
	case policy == nil:
		return summary(&v1alpha1.ExecutionPolicySpec{})
	default:
		return summary(&policy.Spec)
	}
}

// summary is what a policy lets calls run.
func summary(p *v1alpha1.ExecutionPolicySpec) string {
	programs := "any program"
	if b := p.Binaries; b != nil && (len(b.Allowed) > 0 || b.Mode == v1alpha1.BinariesEnforced) {
		programs = few(b.Allowed)
	}
	parts := []string{programs}
	if p.Shell != nil && p.Shell.Enabled != nil && *p.Shell.Enabled {
		parts = append(parts, "shell")
	}
	if c := p.Code; c == nil || c.Enabled == nil || *c.Enabled {
		parts = append(parts, languages(p.Code))
	}
	return strings.Join(parts, "; ")
}

func languages(code *v1alpha1.CodePolicy) string {
	switch {
	case code == nil || code.Languages == nil:
		return "code in python"
	case len(code.Languages) == 0:
		return "code in any language"
	default:
		return "code in " + few(code.Languages)
	}
}

// few names the first of many.
func few(names []string) string {
	const most = 6
	if len(names) == 0 {
		return "no program"
	}
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

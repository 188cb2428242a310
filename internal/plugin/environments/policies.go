package environments

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/plugin/cli"
)

// policyReader reads policies with the rights of the person who asks, each policy once.
type policyReader struct {
	client client.Reader
	cache  map[string]policyResult
}

type policyResult struct {
	policies decide.Policies
	err      error
}

func newPolicyReader(c *cli.Cluster) *policyReader {
	return &policyReader{client: c.Asker, cache: map[string]policyResult{}}
}

// policyFor returns the policy that applies to an environment's calls, nil for the built-in defaults.
func (r *policyReader) policyFor(ctx context.Context, env *v1alpha1.ExecutionEnvironment) (*v1alpha1.ExecutionPolicy, error) {
	policies, err := r.policies(ctx, env)
	if err != nil {
		return nil, err
	}
	return policies.For(env)
}

// policies returns the policies that may apply to an environment's calls.
func (r *policyReader) policies(ctx context.Context, env *v1alpha1.ExecutionEnvironment) (decide.Policies, error) {
	name := env.Spec.PolicyName()
	if cached, ok := r.cache[name]; ok {
		return cached.policies, cached.err
	}
	policies, err := r.get(ctx, name)
	r.cache[name] = policyResult{policies, err}
	return policies, err
}

func (r *policyReader) get(ctx context.Context, name string) (decide.Policies, error) {
	if name == "" {
		list := &v1alpha1.ExecutionPolicyList{}
		if err := r.client.List(ctx, list); err != nil {
			return decide.Policies{}, cli.PermissionError("list executionpolicies", err)
		}
		return decide.Policies{Defaults: slices.DeleteFunc(list.Items, func(p v1alpha1.ExecutionPolicy) bool {
			return p.Annotations[v1alpha1.AnnotationDefaultPolicy] != "true"
		})}, nil
	}
	policy := &v1alpha1.ExecutionPolicy{}
	err := r.client.Get(ctx, types.NamespacedName{Name: name}, policy)
	if apierrors.IsNotFound(err) {
		return decide.Policies{}, nil
	}
	if err != nil {
		return decide.Policies{}, cli.PermissionError("get executionpolicies", err)
	}
	return decide.Policies{Named: policy}, nil
}

// allows summarizes what the policy of an environment allows.
func (r *policyReader) allows(ctx context.Context, env *v1alpha1.ExecutionEnvironment) string {
	policy, err := r.policyFor(ctx, env)
	switch {
	case apierrors.IsForbidden(err):
		return "(no permission to read policies)"
	case err != nil:
		return "nothing: " + err.Error()
	default:
		return policySummary(specOf(policy))
	}
}

// specOf is what a policy says, nothing for the built-in defaults.
func specOf(policy *v1alpha1.ExecutionPolicy) *v1alpha1.ExecutionPolicySpec {
	if policy == nil {
		return &v1alpha1.ExecutionPolicySpec{}
	}
	return &policy.Spec
}

// policySummary lists what a policy allows.
func policySummary(p *v1alpha1.ExecutionPolicySpec) string {
	programs := "any program"
	if b := p.Binaries; b != nil && (len(b.Allowed) > 0 || b.Mode == v1alpha1.BinariesEnforced) {
		programs = JoinFirst(b.Allowed)
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

// policyNetwork says what of the network a policy gives to commands; nil for the built-in defaults.
func policyNetwork(p *v1alpha1.ExecutionPolicy) string {
	rules := v1alpha1.NetworkRules{}
	if p != nil && p.Spec.Network != nil {
		rules = *p.Spec.Network
	}
	var hosts []string
	for _, host := range rules.Allowed {
		hosts = append(hosts, host.Host)
	}
	inCluster := ptr.Deref(rules.AllowInCluster, false)
	switch rules.Mode {
	case v1alpha1.NetworkNone:
		return "none"
	case v1alpha1.NetworkUnrestricted:
		return "not restricted by the runner"
	case v1alpha1.NetworkListed:
		if len(hosts) == 0 {
			return "no host"
		}
		return JoinFirst(hosts)
	case v1alpha1.NetworkOpen:
	}
	text := "every host outside the cluster that isn't denied"
	if inCluster {
		text = "every host that isn't denied"
	} else if len(hosts) > 0 {
		text += ", and " + JoinFirst(hosts)
	}
	if rules.Mode == "" {
		text += "; code has none, unless policy and call allow it"
	}
	return text
}

func languages(code *v1alpha1.CodePolicy) string {
	switch {
	case code == nil || code.Languages == nil:
		return "code in python"
	case len(code.Languages) == 0:
		return "code in any language"
	default:
		return "code in " + JoinFirst(code.Languages)
	}
}

// JoinFirst joins the first names of a list.
func JoinFirst(names []string) string {
	const limit = 6
	if len(names) == 0 {
		return "no program"
	}
	if len(names) <= limit {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
}

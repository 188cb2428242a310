package policy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/plugin/cli"
)

// maxFile bounds a file with policies, in bytes.
const maxFile = 4 << 20

// readFile reads the policies of a file, or of standard input for "-". Other objects in it are left out.
func readFile(name string, stdin io.Reader) ([]v1alpha1.ExecutionPolicy, error) {
	in, err := cli.Open(name, stdin)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	policies, err := Parse(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return policies, nil
}

// Parse reads the policies among YAML documents. A field that policies don't have is an error.
func Parse(in io.Reader) ([]v1alpha1.ExecutionPolicy, error) {
	limited := &io.LimitedReader{R: in, N: maxFile + 1}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(limited))
	var policies []v1alpha1.ExecutionPolicy
	for i := 1; ; i++ {
		document, err := documents.Read()
		if limited.N <= 0 {
			return nil, fmt.Errorf("the file has more than %d bytes", maxFile)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		raw, err := yaml.YAMLToJSONStrict(document)
		if err == nil {
			policies, err = appendPolicies(policies, raw)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
	}
	if len(policies) == 0 {
		return nil, fmt.Errorf("there is no ExecutionPolicy of %s in it", v1alpha1.GroupVersion)
	}
	return policies, nil
}

var (
	policyKind     = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ExecutionPolicy"}
	policyListKind = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ExecutionPolicyList"}
	listKind       = metav1.TypeMeta{APIVersion: "v1", Kind: "List"}
)

// appendPolicies adds the policy that an object is, or those of a list, as kubectl prints and applies them. Others are left out.
func appendPolicies(policies []v1alpha1.ExecutionPolicy, raw []byte) ([]v1alpha1.ExecutionPolicy, error) {
	var kind metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &kind); err != nil {
		return nil, err
	}
	switch kind {
	case policyKind:
		policy := v1alpha1.ExecutionPolicy{}
		unknown, err := json.UnmarshalStrict(raw, &policy)
		if err := errors.Join(append(unknown, err)...); err != nil {
			return nil, fmt.Errorf("ExecutionPolicy %s: %s", policy.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		policies = append(policies, policy)
	case listKind, policyListKind:
		list := &metav1.List{}
		err := json.UnmarshalCaseSensitivePreserveInts(raw, list)
		for i := 0; err == nil && i < len(list.Items); i++ {
			policies, err = appendPolicies(policies, list.Items[i].Raw)
		}
		return policies, err
	}
	return policies, nil
}

// ReadOne reads a file with a single policy, or standard input for "-".
func ReadOne(name string, stdin io.Reader) (*v1alpha1.ExecutionPolicy, error) {
	policies, err := readFile(name, stdin)
	if err != nil {
		return nil, err
	}
	if len(policies) > 1 {
		return nil, fmt.Errorf("%s: it has %d ExecutionPolicies, and this command takes one: put them into separate files", name, len(policies))
	}
	return &policies[0], nil
}

// explain names the permission that is missing. Policies are cluster-scoped, so a RoleBinding can't grant permission to read them.
func explain(action string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("you need permission to %s: bind the ClusterRole toolcall-policy-viewer with a ClusterRoleBinding: %w", action, err)
	}
	return fmt.Errorf("%s: %w", action, err)
}

// Set are the policies of a cluster.
type Set struct {
	named map[string]*v1alpha1.ExecutionPolicy
	// defaults are those that are marked as the default.
	defaults []v1alpha1.ExecutionPolicy
	// Err is why they can't be read.
	Err error
}

// ReadSet reads all policies.
func ReadSet(ctx context.Context, from client.Reader) *Set {
	list := &v1alpha1.ExecutionPolicyList{}
	if err := from.List(ctx, list); err != nil {
		return &Set{Err: explain("list executionpolicies", err)}
	}
	return newSet(list.Items)
}

func newSet(policies []v1alpha1.ExecutionPolicy) *Set {
	s := &Set{named: map[string]*v1alpha1.ExecutionPolicy{}}
	for i := range policies {
		s.named[policies[i].Name] = &policies[i]
		if policies[i].Annotations[v1alpha1.AnnotationDefaultPolicy] == "true" {
			s.defaults = append(s.defaults, policies[i])
		}
	}
	return s
}

// For is the policy that applies to an environment's calls, nil for the built-in defaults.
func (s *Set) For(env *v1alpha1.ExecutionEnvironment) (*v1alpha1.ExecutionPolicy, error) {
	if s.Err != nil {
		return nil, s.Err
	}
	policies := s.Of(env)
	return policies.For(env)
}

// Of are those that may apply to an environment's calls.
func (s *Set) Of(env *v1alpha1.ExecutionEnvironment) decide.Policies {
	return decide.Policies{Named: s.named[env.Spec.PolicyName()], Defaults: s.defaults}
}

// isFile says whether an argument is a file, and not the name of a policy: "-", a path, or a name that ends like a manifest's.
func isFile(argument string) bool {
	return argument == "-" || strings.ContainsRune(argument, filepath.Separator) || slices.Contains(Extensions, strings.TrimPrefix(filepath.Ext(argument), "."))
}

// find reads a policy from a file, or the one of that name from the cluster.
func find(ctx context.Context, c *cli.CLI, argument string) (*v1alpha1.ExecutionPolicy, error) {
	if isFile(argument) {
		return ReadOne(argument, c.In)
	}
	cluster, err := c.Connect()
	if err != nil {
		return nil, err
	}
	policy := &v1alpha1.ExecutionPolicy{}
	if err := cluster.Client.Get(ctx, types.NamespacedName{Name: argument}, policy); err != nil {
		return nil, explain(fmt.Sprintf("get executionpolicies/%s (write ./%s for a file)", argument, argument), err)
	}
	return policy, nil
}

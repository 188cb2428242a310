package api_test

import (
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// bind gives a user a role of the cluster in the namespace.
func (s *space) bind(user, clusterRole string) {
	s.t.Helper()
	s.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, GenerateName: "b-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
}

// bindInCluster gives a user a role in the whole cluster, for as long as the test runs.
func (s *space) bindInCluster(user, clusterRole string) {
	s.t.Helper()
	s.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "b-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
}

// awaitRight waits until a binding is in force.
func (s *space) awaitRight(user, verb, resource, name string) {
	s.t.Helper()
	eventually(s.t, func() error {
		may, err := s.may(user, verb, resource, name)
		if err == nil && !may {
			err = fmt.Errorf("%s may not %s %s %q", user, verb, resource, name)
		}
		return err
	})
}

// may asks the API server whether a user may do something in the space, or in the whole cluster for policies.
func (s *space) may(user, verb, resource, name string) (bool, error) {
	namespace := s.namespace
	if resource == "executionpolicies" {
		namespace = ""
	}
	resource, sub, _ := strings.Cut(resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: []string{"system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: "toolcall.dev", Resource: resource, Subresource: sub, Name: name,
		},
	}}
	err := s.admin.Create(s.t.Context(), review)
	return review.Status.Allowed, err
}

func withPolicy(namespace, name, policy string) *v1alpha1.ExecutionEnvironment {
	env := newEnvironment(namespace, name)
	if policy != "" {
		env.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: policy}
	}
	return env
}

func TestNamingAPolicyNeedsTheRightToUseIt(t *testing.T) {
	s := newSpace(t)
	author, mine, other := "author-"+s.namespace, "mine-"+s.namespace, "other-"+s.namespace
	s.bind(author, "toolcall-admin")
	s.create(&rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: mine},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"toolcall.dev"}, Resources: []string{"executionpolicies"}, ResourceNames: []string{mine}, Verbs: []string{"use"}}},
	})
	s.bindInCluster(author, mine)
	s.awaitRight(author, "use", "executionpolicies", mine)
	s.awaitRight(author, "create", "executionenvironments", "")
	user := s.as(author, asUser{})

	refused := `you may not "use" the ExecutionPolicy "` + other + `"`
	for policy, want := range map[string]string{"": "", mine: "", other: refused} {
		expectRefused(t, user.Create(t.Context(), withPolicy(s.namespace, "env", policy), client.DryRunAll), want)
	}
	applied := asYAML(t, map[string]any{
		"apiVersion": "toolcall.dev/v1alpha1", "kind": "ExecutionEnvironment",
		"metadata": map[string]any{"name": "applied", "namespace": s.namespace},
		"spec":     map[string]any{"image": "i", "policyRef": map[string]any{"name": other}},
	})
	if said, err := s.Kubectl(applied, "--as="+author, "apply", "--server-side", "-f", "-"); err == nil || !strings.Contains(said, "may not \"use\"") {
		t.Errorf("apply: %s", said)
	}

	// Somebody else may have chosen a policy: its environment can be edited, and only another choice is refused.
	env := withPolicy(s.namespace, "chosen", other)
	s.create(env)
	env.Spec.Image = "example.com/tools:2"
	expectRefused(t, user.Update(t.Context(), env), "")
	env.Spec.PolicyRef.Name = mine
	expectRefused(t, user.Update(t.Context(), env), "")
	env.Spec.PolicyRef.Name = other
	expectRefused(t, user.Update(t.Context(), env), refused)
	env.Spec.PolicyRef = nil
	expectRefused(t, user.Update(t.Context(), env), "")
	env.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: other}
	expectRefused(t, user.Update(t.Context(), env), refused)
}

// Policies are the cluster's, so a role that is bound in a namespace can't give them.
func TestARoleOfANamespaceGivesNoPolicies(t *testing.T) {
	s := newSpace(t)
	user, platform := "user-"+s.namespace, "platform-"+s.namespace
	s.bind(user, "toolcall-admin")
	s.bind(user, "toolcall-policy-user")
	s.bind(platform, "toolcall-admin")
	s.bindInCluster(platform, "toolcall-policy-user")
	s.awaitRight(platform, "use", "executionpolicies", "any")
	s.awaitRight(user, "create", "executionenvironments", "")
	expectRefused(t, s.as(user, asUser{}).Create(t.Context(), withPolicy(s.namespace, "env", "any"), client.DryRunAll), `may not "use"`)
	expectRefused(t, s.as(platform, asUser{}).Create(t.Context(), withPolicy(s.namespace, "env", "any"), client.DryRunAll), "")
}

// rightsOf are what the project's roles allow in a namespace, and what they don't.
var rightsOf = map[string]struct{ may, mayNot []string }{
	"toolcall-viewer": {
		[]string{"get toolcalls", "watch toolcalls", "list toolsessions", "list executionenvironments", "get skills"},
		[]string{"create toolcalls", "delete toolcalls", "create toolsessions", "use toolsessions", "create executionenvironments", "use tools", "get executionpolicies"},
	},
	"toolcall-environment-viewer": {
		[]string{"get executionenvironments", "list skills", "get toolbudgets"},
		[]string{"get toolcalls", "list toolcalls", "get toolsessions", "create executionenvironments"},
	},
	"toolcall-user": {
		[]string{"create toolcalls", "get toolcalls", "patch toolcalls", "delete toolcalls", "create toolsessions", "patch toolsessions", "delete toolsessions", "get executionenvironments"},
		[]string{"create executionenvironments", "use tools", "use toolsessions", "patch toolsessions/status", "trust executionenvironments", "patch toolcalls/status", "use executionpolicies"},
	},
	"toolcall-session-user": {
		[]string{"use toolsessions", "get toolsessions"},
		[]string{"create toolsessions", "patch toolsessions", "create toolcalls", "use tools"},
	},
	"toolcall-admin": {
		[]string{"create toolcalls", "create toolsessions", "delete toolsessions", "create executionenvironments", "delete skills", "patch executionenvironments/scale"},
		[]string{"use tools", "use toolsessions", "patch toolsessions/status", "trust executionenvironments", "patch toolcalls/status", "use executionpolicies", "create executionpolicies"},
	},
	"toolcall-budget-admin": {
		[]string{"create toolbudgets", "patch toolbudgets", "delete toolbudgets"},
		[]string{"patch toolbudgets/status", "create toolcalls", "get toolcalls"},
	},
	"view": {
		[]string{"get executionenvironments", "watch skills"},
		[]string{"get toolcalls", "list toolcalls", "watch toolcalls", "create toolcalls", "get toolsessions", "create executionenvironments"},
	},
	"edit": {
		[]string{"get toolcalls", "create toolcalls", "patch toolcalls", "delete toolcalls", "create toolsessions"},
		[]string{"create executionenvironments", "use tools", "use toolsessions", "trust executionenvironments", "use executionpolicies"},
	},
	"admin": {
		[]string{"create toolcalls", "create toolsessions", "create executionenvironments", "delete skills", "patch executionenvironments/scale"},
		[]string{"use tools", "use toolsessions", "trust executionenvironments", "use executionpolicies", "create executionpolicies", "create toolbudgets", "patch toolbudgets"},
	},
}

func TestRolesForPeople(t *testing.T) {
	for role, rights := range rightsOf {
		t.Run(role, func(t *testing.T) {
			s := newSpace(t)
			if !strings.HasPrefix(role, "toolcall-") {
				withControllers(t)
			}
			user := role + "-" + s.namespace
			s.bind(user, role)
			for _, right := range rights.may {
				verb, resource, _ := strings.Cut(right, " ")
				s.awaitRight(user, verb, resource, "")
			}
			for _, right := range rights.mayNot {
				verb, resource, _ := strings.Cut(right, " ")
				if may, err := s.may(user, verb, resource, ""); may || err != nil {
					t.Errorf("%s may %s: %v", role, right, err)
				}
			}
		})
	}
}

// Whoever administers all namespaces of a cluster doesn't choose policies by that.
func TestNobodyMayUseEveryPolicyByDefault(t *testing.T) {
	s := newSpace(t)
	withControllers(t)
	for _, role := range []string{"view", "edit", "admin", "toolcall-viewer", "toolcall-user", "toolcall-admin", "toolcall-policy-viewer"} {
		user := role + "-" + s.namespace
		s.bindInCluster(user, role)
		s.awaitRight(user, "get", map[bool]string{true: "executionpolicies", false: "executionenvironments"}[role == "toolcall-policy-viewer"], "")
		if may, err := s.may(user, "use", "executionpolicies", "any"); may || err != nil {
			t.Errorf("%s may use every policy: %v", role, err)
		}
	}
}

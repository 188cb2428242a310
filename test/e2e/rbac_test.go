package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
)

const operatorUser = "system:serviceaccount:" + operatorNamespace + ":" + operatorName

func accountGroups(namespace string) []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
}

// Values of Secrets never pass through the operator, because it may not read them.
func TestOperatorMayNotReadSecrets(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	sp.newData(t, map[string]string{"key": "value"})
	operator := sp.as(t, operatorUser, accountGroups(operatorNamespace)...)
	for _, namespace := range []string{sp.namespace, operatorNamespace, ""} {
		for _, verb := range []string{"get", "list", "watch", "update", "patch", "delete", "deletecollection"} {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Resource: "secrets"},
			}}
			must(t, operator.Create(t.Context(), review))
			if review.Status.Allowed {
				t.Errorf("the operator may %s secrets in namespace %q", verb, namespace)
			}
		}
		said, _ := sp.kubectl(t, "auth", "can-i", "get", "secrets", "--as="+operatorUser, "--namespace="+namespace)
		if strings.TrimSpace(said) != "no" {
			t.Errorf("kubectl auth can-i get secrets in namespace %q says %q", namespace, said)
		}
	}
	data := secret(sp.namespace, "data")
	expectRefused(t, operator.Get(t.Context(), keyOf(data), data), "cannot get resource \"secrets\"")
}

// What the cluster grants the operator is what config/rbac says: no binding more, no rule more, no wildcard.
func TestOperatorIsGrantedWhatConfigSays(t *testing.T) {
	t.Parallel()
	s := cluster(t)
	wantCluster, wantOwn := operatorRoles(t, s.root)
	cluster, own := boundRules(t, s)
	expectSame(t, "rules in the whole cluster", flatten(wantCluster), flatten(cluster))
	expectSame(t, "rules in the operator's namespace", flatten(wantOwn), flatten(own))
	for _, rule := range append(flatten(cluster), flatten(own)...) {
		if strings.Contains(rule, "*") {
			t.Errorf("the operator has a right with a wildcard: %s", rule)
		}
	}
}

// operatorRoles reads the generated roles.
func operatorRoles(t *testing.T, root string) (cluster, own []rbacv1.PolicyRule) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "config", "rbac", "role.yaml"))
	must(t, err)
	for document := range strings.SplitSeq(string(raw), "\n---\n") {
		role := &rbacv1.Role{}
		must(t, yaml.Unmarshal([]byte(document), role))
		switch {
		case role.Kind == "ClusterRole":
			cluster = append(cluster, role.Rules...)
		case role.Kind == "Role" && role.Namespace == operatorNamespace:
			own = append(own, role.Rules...)
		default:
			t.Fatalf("config/rbac/role.yaml holds a %s in namespace %q", role.Kind, role.Namespace)
		}
	}
	return cluster, own
}

// boundRules collects what all bindings that name the operator's account lead to.
func boundRules(t *testing.T, s *suite) (cluster, own []rbacv1.PolicyRule) {
	t.Helper()
	clusterBindings, bindings := &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleBindingList{}
	must(t, s.client.List(t.Context(), clusterBindings))
	must(t, s.client.List(t.Context(), bindings))
	for _, b := range clusterBindings.Items {
		if slices.ContainsFunc(b.Subjects, isOperator) {
			role := &rbacv1.ClusterRole{}
			must(t, s.client.Get(t.Context(), client.ObjectKey{Name: b.RoleRef.Name}, role))
			cluster = append(cluster, role.Rules...)
		}
	}
	for _, b := range bindings.Items {
		if !slices.ContainsFunc(b.Subjects, isOperator) {
			continue
		}
		if b.Namespace != operatorNamespace || b.RoleRef.Kind != "Role" {
			t.Errorf("RoleBinding %s/%s gives the operator %s %s", b.Namespace, b.Name, b.RoleRef.Kind, b.RoleRef.Name)
			continue
		}
		role := &rbacv1.Role{}
		must(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: b.Namespace, Name: b.RoleRef.Name}, role))
		own = append(own, role.Rules...)
	}
	return cluster, own
}

// isOperator leaves out the groups that every account is in: what they may is the cluster's business.
func isOperator(s rbacv1.Subject) bool {
	return (s.Kind == rbacv1.ServiceAccountKind && s.Namespace == operatorNamespace && s.Name == operatorName) ||
		(s.Kind == rbacv1.UserKind && s.Name == operatorUser) ||
		(s.Kind == rbacv1.GroupKind && s.Name == "system:serviceaccounts:"+operatorNamespace)
}

// flatten writes every right on a line of its own, sorted, so that it doesn't matter how rules are grouped.
func flatten(rules []rbacv1.PolicyRule) []string {
	var lines []string
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					lines = append(lines, fmt.Sprintf("%s %s.%s %q", verb, resource, group, r.ResourceNames))
				}
			}
		}
		if len(r.NonResourceURLs) > 0 {
			lines = append(lines, fmt.Sprintf("%q %q", r.Verbs, r.NonResourceURLs))
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// The roles for people add themselves to the cluster's own.
func TestRolesForPeople(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	for role, want := range map[string]map[string]bool{
		"view":  {"get toolcalls": false, "create toolcalls": false, "delete toolcalls": false, "get executionenvironments": true, "create executionenvironments": false},
		"edit":  {"create toolcalls": true, "patch toolcalls": true, "delete toolcalls": true, "create executionenvironments": false, "use tools": false, "trust executionenvironments": false},
		"admin": {"create toolcalls": true, "create executionenvironments": true, "delete skills": true, "use tools": false, "trust executionenvironments": false},
	} {
		user := role + "er-" + sp.namespace
		sp.bind(t, role, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
		for right, may := range want {
			verb, resource, _ := strings.Cut(right, " ")
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: sp.namespace, Verb: verb, Group: v1alpha1.GroupVersion.Group, Resource: resource,
				},
			}}
			sp.awaitAnswer(t, fmt.Sprintf("%s may %s: %t", role, right, may), review, may)
		}
	}
}

// awaitAnswer asks until the answer is as wanted: bindings take a moment to be in force.
func (sp *space) awaitAnswer(t *testing.T, what string, review *authorizationv1.SubjectAccessReview, want bool) {
	t.Helper()
	for range 50 {
		asked := review.DeepCopy()
		must(t, sp.client.Create(t.Context(), asked))
		if asked.Status.Allowed == want {
			return
		}
	}
	t.Errorf("it isn't so that %s", what)
}

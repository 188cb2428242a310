package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"toolcall.dev/operator/config/rbac"
)

// concurrentReviews is how many rights are asked about at the same time.
const concurrentReviews = 16

// neededRights are the generated roles' rights: those on what is in namespaces, in each of these or, if there are none,
// in every namespace.
func neededRights(namespaces []string, own string) ([]authorizationv1.ResourceAttributes, error) {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var all []authorizationv1.ResourceAttributes
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rbac.Roles), 4096); ; {
		role := &rbacv1.Role{}
		if err := decoder.Decode(role); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the operator's roles: %w", err)
		}
		in := []string{metav1.NamespaceAll}
		switch {
		case role.Name == rbac.NamespacedRole:
			in = namespaces
		case role.Namespace != "":
			in = []string{own}
		}
		for _, namespace := range in {
			for _, rule := range role.Rules {
				all = append(all, rightsOf(rule, namespace)...)
			}
		}
	}
}

// rightsOf takes a rule of a role apart.
func rightsOf(rule rbacv1.PolicyRule, namespace string) (rights []authorizationv1.ResourceAttributes) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			resource, subresource, _ := strings.Cut(resource, "/")
			for _, name := range names {
				for _, verb := range rule.Verbs {
					rights = append(rights, authorizationv1.ResourceAttributes{
						Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: name,
					})
				}
			}
		}
	}
	return rights
}

// lackingRights are those of the needed ones that the account doesn't have, in the same order.
func lackingRights(ctx context.Context, reviews authorizationv1client.SelfSubjectAccessReviewInterface, needed []authorizationv1.ResourceAttributes) ([]authorizationv1.ResourceAttributes, error) {
	allowed := make([]bool, len(needed))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrentReviews)
	for i := range needed {
		group.Go(func() error {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &needed[i]}}
			answer, err := reviews.Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("ask for the operator's own rights: %w", err)
			}
			allowed[i] = answer.Status.Allowed
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var lacking []authorizationv1.ResourceAttributes
	for i, right := range needed {
		if !allowed[i] {
			lacking = append(lacking, right)
		}
	}
	return lacking, nil
}

// describeRights lists rights.
func describeRights(rights []authorizationv1.ResourceAttributes) string {
	var all []string
	for _, r := range rights {
		place := "in the whole cluster"
		if r.Namespace != "" {
			place = "in namespace " + r.Namespace
		}
		resource := schema.GroupResource{Group: r.Group, Resource: path.Join(r.Resource, r.Subresource)}
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s: %s %s %s", place, r.Verb, resource, r.Name)))
	}
	return strings.Join(all, "; ")
}

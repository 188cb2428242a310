package executionenvironment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/jobspec"
)

// Names of the NetworkPolicies in each namespace that has an environment.
const (
	ingressPolicy   = "toolcall-no-ingress"
	noNetworkPolicy = "toolcall-no-network"
)

// operatorLabels select the operator's pods in its namespace.
var operatorLabels = map[string]string{"app.kubernetes.io/name": "toolcall-operator"}

// +kubebuilder:rbac:groups=networking.k8s.io,roleName=toolcall-operator-namespaced,resources=networkpolicies,verbs=get;list;watch;create;update

// ensureNetworkPolicies keeps a namespace's tool pods from being connected to, and those that are denied the
// network from connecting to anything but the operator. They belong to the namespace's environments and go
// with the last of them. What holds without a network plugin that enforces them is the runner's own filter.
func (r *Reconciler) ensureNetworkPolicies(ctx context.Context, namespace string) error {
	environments := &v1alpha1.ExecutionEnvironmentList{}
	if err := r.Objects.List(ctx, environments, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list environments: %w", err)
	}
	owners := ownersOf(environments.Items)
	if len(owners) == 0 {
		return nil
	}
	var failed error
	for _, want := range networkPolicies(namespace, r.OperatorNamespace, r.OperatorPort) {
		want.OwnerReferences = owners
		// An error that may pass is returned rather than a refusal, so that the next try comes soon.
		if err := r.ensureNetworkPolicy(ctx, want); err != nil && (failed == nil || refusedPolicies(failed) != "") {
			failed = err
		}
	}
	return failed
}

func (r *Reconciler) ensureNetworkPolicy(ctx context.Context, want *networkingv1.NetworkPolicy) error {
	have := &networkingv1.NetworkPolicy{}
	err := r.Objects.Get(ctx, client.ObjectKeyFromObject(want), have)
	switch {
	case apierrors.IsNotFound(err):
		err = r.Client.Create(ctx, want)
	case err == nil && equality.Semantic.DeepEqual(have.Spec, want.Spec) && equality.Semantic.DeepEqual(have.OwnerReferences, want.OwnerReferences):
		return nil
	case err == nil:
		want.ResourceVersion = have.ResourceVersion
		err = r.Client.Update(ctx, want)
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		// Everything in it goes, the environments too.
		return nil
	}
	switch {
	case apierrors.IsConflict(err):
		// Another environment's pass was first. Its write comes by the watch, and is checked then.
		return nil
	case apierrors.IsAlreadyExists(err):
		return r.checkOwn(ctx, want)
	case err != nil:
		return fmt.Errorf("write NetworkPolicy %s: %w", want.Name, err)
	}
	return nil
}

// errForeign is about a NetworkPolicy that the cache never shows, because it doesn't have the operator's label.
var errForeign = errors.New("it is there already and lacks the label " + v1alpha1.LabelManagedBy + "=" + v1alpha1.ManagedBy + ": delete it")

// checkOwn says whether a NetworkPolicy that the cache doesn't show is the operator's: then another environment's pass was first.
func (r *Reconciler) checkOwn(ctx context.Context, want *networkingv1.NetworkPolicy) error {
	there := &networkingv1.NetworkPolicy{}
	found, err := r.Objects.FindLive(ctx, client.ObjectKeyFromObject(want), there)
	if err == nil && found && there.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
		err = fmt.Errorf("write NetworkPolicy %s: %w", want.Name, errForeign)
	}
	return err
}

// refusedPolicies says that the API server doesn't take the namespace's NetworkPolicies; empty for any other error. Calls run
// without them: the runner's own filter holds them.
func refusedPolicies(err error) string {
	if !apierrors.IsForbidden(err) && !apicache.IsRefused(err) && !errors.Is(err, errForeign) {
		return ""
	}
	return v1alpha1.MessageReadyBut + "nothing but their runner keeps them from the network: " + err.Error()
}

// ownersOf are the environments that are not being deleted, by name.
func ownersOf(items []v1alpha1.ExecutionEnvironment) []metav1.OwnerReference {
	var owners []metav1.OwnerReference
	for i := range items {
		if items[i].DeletionTimestamp == nil {
			owners = append(owners, metav1.OwnerReference{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "ExecutionEnvironment", Name: items[i].Name, UID: items[i].UID,
			})
		}
	}
	slices.SortFunc(owners, func(a, b metav1.OwnerReference) int { return strings.Compare(a.Name, b.Name) })
	return owners
}

// networkPolicies are what a namespace gets.
func networkPolicies(namespace, operatorNamespace string, operatorPort int32) []*networkingv1.NetworkPolicy {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}}
	}
	return []*networkingv1.NetworkPolicy{
		{
			ObjectMeta: meta(ingressPolicy),
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			},
		},
		{
			ObjectMeta: meta(noNetworkPolicy),
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{
					v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, jobspec.LabelNetwork: jobspec.NetworkDenied,
				}},
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
				Egress: []networkingv1.NetworkPolicyEgressRule{{
					To: []networkingv1.NetworkPolicyPeer{{
						NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: operatorNamespace}},
						PodSelector:       &metav1.LabelSelector{MatchLabels: operatorLabels},
					}},
					Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(operatorPort))}},
				}},
			},
		},
	}
}

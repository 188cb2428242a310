package faults

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/subresources"
)

// Draining takes one replica of two, and namespaces go meanwhile. With none they stay until the operator is back, and then they go:
// so it is with every aggregated API.
func TestNamespacesGoWhileAReplicaIsThere(t *testing.T) {
	s := local(t)
	s.awaitReady(t)
	s.replicas(t, 2)
	pods, err := s.clients.CoreV1().Pods(operatorNamespace).List(t.Context(), operatorPods)
	must(t, err)
	must(t, s.evict(t, &pods.Items[0]))
	if err := s.evict(t, &pods.Items[1]); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the last replica's eviction is answered: %v", err)
	}
	drained := s.deleteNamespace(t)
	s.awaitNamespaceGone(t, drained)
	s.awaitOperator(t)

	before := s.scale(t, 0)
	t.Cleanup(func() { s.scale(t, before) })
	discovery := s.clients.Discovery()
	await(t, "aggregated API that doesn't answer", func(context.Context) (bool, error) {
		_, err := discovery.ServerResourcesForGroupVersion(subresources.GroupVersion.String())
		return err != nil, nil
	})
	waiting := s.deleteNamespace(t)
	await(t, "namespace that waits for the operator", func(ctx context.Context) (bool, error) {
		if err := s.client.Get(ctx, client.ObjectKeyFromObject(waiting), waiting); err != nil {
			return false, err
		}
		for _, c := range waiting.Status.Conditions {
			if c.Type == corev1.NamespaceDeletionDiscoveryFailure && c.Status == corev1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	s.scale(t, before)
	s.awaitNamespaceGone(t, waiting)
	s.awaitOperator(t)
}

func (s *suite) evict(t *testing.T, pod *corev1.Pod) error {
	t.Helper()
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	return s.clients.PolicyV1().Evictions(pod.Namespace).Evict(t.Context(), eviction)
}

// deleteNamespace makes a namespace and deletes it.
func (s *suite) deleteNamespace(t *testing.T) *corev1.Namespace {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "faults-" + s.id + "-", Labels: map[string]string{labelRun: s.id}}}
	must(t, s.client.Create(t.Context(), namespace))
	must(t, s.client.Delete(t.Context(), namespace))
	return namespace
}

func (s *suite) awaitNamespaceGone(t *testing.T, namespace *corev1.Namespace) {
	t.Helper()
	await(t, "deletion of namespace "+namespace.Name, func(ctx context.Context) (bool, error) {
		err := s.client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

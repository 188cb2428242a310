package faults

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var operatorPods = metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + operatorName}

// leader is the pod of the replica that holds the lease.
func (s *suite) leader(ctx context.Context) (*corev1.Pod, error) {
	holder, err := s.holder(ctx)
	if err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(holder, "_")
	if name == "" {
		return nil, errors.New("nobody holds the lease")
	}
	return s.clients.CoreV1().Pods(operatorNamespace).Get(ctx, name, metav1.GetOptions{})
}

// holder is the process that leads: its pod's name, and an id of its own.
func (s *suite) holder(ctx context.Context) (string, error) {
	lease, err := s.clients.CoordinationV1().Leases(operatorNamespace).Get(ctx, operatorName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}

// managers are the operator's processes in a pod.
func managers(pod *corev1.Pod) []int {
	return processes(string(pod.UID), "/manager", "--runner-image")
}

// awaitOperator waits until every replica is ready and one of them leads.
func (s *suite) awaitOperator(t *testing.T) {
	t.Helper()
	await(t, "ready operator", func(ctx context.Context) (bool, error) {
		deployment, err := s.clients.AppsV1().Deployments(operatorNamespace).Get(ctx, operatorName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		pod, err := s.leader(ctx)
		if err != nil || !isReady(pod) {
			return false, err
		}
		status := deployment.Status
		want := ptr.Deref(deployment.Spec.Replicas, 1)
		return status.ObservedGeneration >= deployment.Generation && status.ReadyReplicas == want && status.Replicas == want && status.UpdatedReplicas == want, nil
	})
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// replicas has that many of the operator run until the test ends.
func (s *suite) replicas(t *testing.T, count int32) {
	t.Helper()
	before := s.scale(t, count)
	t.Cleanup(func() { s.scale(t, before) })
	s.awaitOperator(t)
}

func (s *suite) scale(t *testing.T, count int32) (before int32) {
	t.Helper()
	ctx := context.Background()
	deployments := s.clients.AppsV1().Deployments(operatorNamespace)
	scale, err := deployments.GetScale(ctx, operatorName, metav1.GetOptions{})
	must(t, err)
	before = scale.Spec.Replicas
	scale.Spec.Replicas = count
	_, err = deployments.UpdateScale(ctx, operatorName, scale, metav1.UpdateOptions{})
	must(t, err)
	return before
}

// updateOperator has its pods replaced, as a new version's, and waits until they are.
func (s *suite) updateOperator(t *testing.T) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"test.toolcall.dev/updated":%q}}}}}`, rand.Text())
	_, err := s.clients.AppsV1().Deployments(operatorNamespace).Patch(t.Context(), operatorName, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
	s.awaitOperator(t)
}

// freshOperator replaces the pods, so that no test pays for the kubelet's back-off after another's kills.
func (s *suite) freshOperator(t *testing.T) {
	t.Helper()
	pods, err := s.clients.CoreV1().Pods(operatorNamespace).List(t.Context(), operatorPods)
	must(t, err)
	restarted := false
	for i := range pods.Items {
		for _, c := range pods.Items[i].Status.ContainerStatuses {
			restarted = restarted || c.RestartCount > 0
		}
	}
	if !restarted {
		return
	}
	must(t, s.clients.CoreV1().Pods(operatorNamespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, operatorPods))
	s.awaitOperator(t)
}

package faults

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// The node's pods are thrown out, the operator's among them, and nothing may run there for a while: what ran is
// lost, and is not run again.
func TestNodeEmptied(t *testing.T) {
	b := newBed(t)
	l := b.newLoad(t, inFlight, longest)
	l.awaitBegun(t, inFlight/2)
	taint := corev1.Taint{Key: "faults.toolcall.dev/" + b.id, Effect: corev1.TaintEffectNoExecute}
	t.Cleanup(func() { b.taint(t, taint, false) })
	b.taint(t, taint, true)
	pause(t, 10*time.Second)
	b.taint(t, taint, false)
	l.verify(t, "node emptied for 10 s", l.recover(t, time.Now()), v1alpha1.ReasonPodLost, v1alpha1.ReasonPodRejected)
}

// taint puts a taint on every node, or takes it off.
func (s *suite) taint(t *testing.T, taint corev1.Taint, on bool) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	nodes := &corev1.NodeList{}
	must(t, s.client.List(ctx, nodes))
	for i := range nodes.Items {
		node := &nodes.Items[i]
		must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
			if err := s.client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
				return err
			}
			var taints []corev1.Taint
			for _, other := range node.Spec.Taints {
				if other.Key != taint.Key {
					taints = append(taints, other)
				}
			}
			if on {
				taints = append(taints, taint)
			}
			node.Spec.Taints = taints
			return s.client.Update(ctx, node)
		}))
	}
}

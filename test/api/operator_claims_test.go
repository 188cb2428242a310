package api_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// claimOf is the workspace claim of a session.
func claimOf(namespace string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tc-session", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

func TestTheOperatorMakesNothingButItsOwnClaims(t *testing.T) {
	s := newSpace(t)
	type claim = corev1.PersistentVolumeClaim
	const shape = "empty PersistentVolumeClaims of a volume of their own"
	for name, tc := range map[string]struct {
		change  func(*claim)
		refused string
	}{
		"a workspace":        {func(*claim) {}, ""},
		"without a label":    {func(c *claim) { c.Labels = nil }, "may only touch objects with the label"},
		"with another name":  {func(c *claim) { c.Name = "data" }, shape},
		"of somebody's":      {func(c *claim) { c.Spec.VolumeName = "pv-of-another" }, shape},
		"of a chosen volume": {func(c *claim) { c.Spec.Selector = &metav1.LabelSelector{} }, shape},
		"that is a copy": {func(c *claim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}
		}, shape},
		"for many pods":       {func(c *claim) { c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany} }, shape},
		"for a node's pods":   {func(c *claim) { c.Spec.AccessModes[0] = corev1.ReadWriteOnce }, shape},
		"in kube-system":      {func(c *claim) { c.Namespace = "kube-system" }, "system namespace kube-system"},
		"beside the operator": {func(c *claim) { c.Namespace = operatorNamespace }, "system namespace " + operatorNamespace},
	} {
		t.Run(name, func(t *testing.T) {
			expectRefused(t, s.operator().Create(t.Context(), changedObject(claimOf(s.namespace), tc.change), client.DryRunAll), tc.refused)
		})
	}
	own := claimOf(s.namespace)
	if err := s.operator().Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	expectRefused(t, s.operator().Patch(t.Context(), own.DeepCopy(), label), shape)
	foreign := changedObject(claimOf(s.namespace), func(c *claim) { c.Name, c.Labels = "tc-foreign", nil })
	s.create(foreign)
	expectRefused(t, s.operator().Delete(t.Context(), foreign), "may only touch objects with the label")
	expectRefused(t, s.operator().Delete(t.Context(), own.DeepCopy()), "")
}

// A claim that somebody else filled isn't taken for the workspace of a session. What Kubernetes and its user do with one
// goes on.
func TestNobodyForgesTheWorkspaceOfASession(t *testing.T) {
	s := newSpace(t)
	somebody := s.as("somebody", anybody)
	forged := claimOf(s.namespace)
	expectRefused(t, somebody.Create(t.Context(), forged), "only the operator makes persistentvolumeclaims with the label")
	plain := changedObject(forged, func(c *corev1.PersistentVolumeClaim) { c.Name, c.Labels = "plain", nil })
	s.create(plain)
	own := claimOf(s.namespace)
	if err := s.operator().Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		claim          *corev1.PersistentVolumeClaim
		patch, refused string
	}{
		{plain, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"toolcall-operator"}}}`, "are the operator's on what"},
		{own, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`, "are the operator's on what"},
		{own, `{"metadata":{"labels":{"toolcall.dev/session-uid":"other"}}}`, "are the operator's on what"},
		{own, `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"n"}}}`, ""},
	} {
		raw := client.RawPatch("application/merge-patch+json", []byte(tc.patch))
		expectRefused(t, somebody.Patch(t.Context(), tc.claim.DeepCopy(), raw, client.DryRunAll), tc.refused)
	}
	expectRefused(t, somebody.Delete(t.Context(), own), "")
}

package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func request(change func(*controller.ProvisionOptions)) controller.ProvisionOptions {
	reclaim := corev1.PersistentVolumeReclaimDelete
	o := controller.ProvisionOptions{
		PVName:           "pvc-1",
		SelectedNodeName: "node",
		StorageClass:     &storagev1.StorageClass{ReclaimPolicy: &reclaim},
		PVC: &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}},
		}},
	}
	if change != nil {
		change(&o)
	}
	return o
}

func TestAVolumeIsWhatItsClaimAsksFor(t *testing.T) {
	p := &provisioner{node: "node", disks: newDisks(t)}
	pv, state, err := p.Provision(t.Context(), request(nil))
	if err != nil || state != controller.ProvisioningFinished {
		t.Fatalf("%s, %v", state, err)
	}
	if got := pv.Spec.Capacity[corev1.ResourceStorage]; got.String() != "16Mi" {
		t.Errorf("capacity %s", got.String())
	}
	if modes := pv.Spec.AccessModes; len(modes) != 1 || modes[0] != corev1.ReadWriteOncePod {
		t.Errorf("access modes %v", modes)
	}
	if mounted, err := isMounted(pv.Spec.Local.Path); err != nil || !mounted {
		t.Errorf("%s is mounted: %t, %v", pv.Spec.Local.Path, mounted, err)
	}
	must(t, p.Delete(t.Context(), pv))
	if mounted, err := isMounted(pv.Spec.Local.Path); err != nil || mounted {
		t.Errorf("after deletion, %s is mounted: %t, %v", pv.Spec.Local.Path, mounted, err)
	}
}

func TestAClaimThatIsTooLargeGoesBackToTheScheduler(t *testing.T) {
	p := &provisioner{node: "node", disks: disks{dir: t.TempDir()}}
	_, state, err := p.Provision(t.Context(), request(func(o *controller.ProvisionOptions) {
		o.PVC.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("4Ei")
	}))
	if err == nil || state != controller.ProvisioningReschedule {
		t.Errorf("%s, %v", state, err)
	}
}

func TestWhatAVolumeCannotDoIsRefused(t *testing.T) {
	p := &provisioner{node: "node", disks: disks{dir: t.TempDir()}}
	for says, change := range map[string]func(*controller.ProvisionOptions){
		"access mode ReadWriteMany isn't supported": func(o *controller.ProvisionOptions) {
			o.PVC.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany}
		},
		"data source": func(o *controller.ProvisionOptions) {
			o.PVC.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
		},
		"selector":          func(o *controller.ProvisionOptions) { o.PVC.Spec.Selector = &metav1.LabelSelector{} },
		`parameter "fast"`:  func(o *controller.ProvisionOptions) { o.StorageClass.Parameters = map[string]string{"fast": "yes"} },
		"on node node only": func(o *controller.ProvisionOptions) { o.SelectedNodeName = "elsewhere" },
	} {
		_, state, err := p.Provision(t.Context(), request(change))
		if err == nil || !strings.Contains(err.Error(), says) || state != controller.ProvisioningFinished {
			t.Errorf("%s: %s, %v", says, state, err)
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// provisioner turns claims into volumes of the one node.
type provisioner struct {
	node  string
	disks disks
}

// Provision makes a claim's volume. Where there is no room it asks the scheduler for another node, so that the pod, and
// not only the claim, says that it can't be placed.
func (p *provisioner) Provision(ctx context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	if err := p.checkSupported(o); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	size := o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]
	err := p.disks.make(ctx, o.PVName, size.Value())
	if errors.Is(err, errNoRoom) {
		return nil, controller.ProvisioningReschedule, err
	}
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return p.volume(o), controller.ProvisioningFinished, nil
}

// Delete removes what Provision made.
func (p *provisioner) Delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	return p.disks.remove(ctx, volume.Name)
}

// checkSupported refuses whatever a volume would silently not do.
func (p *provisioner) checkSupported(o controller.ProvisionOptions) error {
	spec := o.PVC.Spec
	if o.SelectedNodeName != "" && o.SelectedNodeName != p.node {
		return fmt.Errorf("volumes are on node %s only, the pod is to run on %s", p.node, o.SelectedNodeName)
	}
	for _, mode := range spec.AccessModes {
		if mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod {
			return fmt.Errorf("access mode %s isn't supported: use ReadWriteOnce or ReadWriteOncePod", mode)
		}
	}
	if spec.DataSource != nil || spec.DataSourceRef != nil {
		return errors.New("a volume can't be made from a data source")
	}
	if spec.Selector != nil {
		return errors.New("a claim with a selector gets no new volume")
	}
	for name := range o.StorageClass.Parameters {
		return fmt.Errorf("the StorageClass has a parameter %q: this provisioner has none", name)
	}
	return nil
}

func (p *provisioner) volume(o controller.ProvisionOptions) *corev1.PersistentVolume {
	reclaim := corev1.PersistentVolumeReclaimDelete
	if o.StorageClass.ReclaimPolicy != nil {
		reclaim = *o.StorageClass.ReclaimPolicy
	}
	here := corev1.NodeSelectorRequirement{
		Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{p.node},
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   o.PVC.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: reclaim,
			MountOptions:                  o.StorageClass.MountOptions,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: p.disks.mountPoint(o.PVName)},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{here}}},
			}},
		},
	}
}

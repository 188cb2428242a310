package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// These tests are about the local cluster, on which other tests use claims.

// newClaim makes a claim that says no more than its size, and that one pod at a time may use it.
func (sp *space) newClaim(t *testing.T, name, size string, adjust ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		},
	}
	for _, change := range adjust {
		change(claim)
	}
	must(t, sp.client.Create(t.Context(), claim))
	return claim
}

// newClaimPod starts a pod with a claim at /data, for a user that isn't root.
func (sp *space) newClaimPod(t *testing.T, name, claim, script string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: ptr.To(int64(0)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(65532)), FSGroup: ptr.To(int64(65532)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "main", Image: toolImage, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sh", "-c", script},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
	}
	must(t, sp.client.Create(t.Context(), pod))
	return pod
}

// awaitPodLog waits until a pod's log has a text, and returns the log.
func (sp *space) awaitPodLog(t *testing.T, pod *corev1.Pod, text string) string {
	t.Helper()
	var log string
	err := poll(t.Context(), func(ctx context.Context) (bool, error) {
		// Before the container starts there is none.
		raw, err := sp.clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		log = string(raw)
		return err == nil && strings.Contains(log, text), nil
	})
	if err != nil {
		t.Fatalf("no %q in the log of pod %s: %v; it says:\n%s", text, pod.Name, err, log)
	}
	return log
}

// awaitUnschedulable waits until the scheduler says of a pod that, and why, it can't be placed.
func (sp *space) awaitUnschedulable(t *testing.T, pod *corev1.Pod, why string) {
	t.Helper()
	sp.await(t, "pod that waits for: "+why, &corev1.PodList{}, func(o client.Object, gone bool) bool {
		p, ok := o.(*corev1.Pod)
		if !ok || gone {
			return false
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, why) {
				return true
			}
		}
		return false
	}, named(pod)...)
}

func TestAClaimsVolumeHoldsItsSizeAndIsForOnePodAtATime(t *testing.T) {
	t.Parallel()
	sp := newBareSpace(t)
	claim := sp.newClaim(t, "data", "64Mi")
	writer := sp.newClaimPod(t, "writer", claim.Name,
		`echo kept >/data/kept; head -c 100M /dev/zero >/data/rest || true; du -sk /data; echo written; sleep 1000`)
	if log := sp.awaitPodLog(t, writer, "written"); !strings.Contains(log, "No space left on device") {
		t.Errorf("100 MiB fitted into a volume of 64:\n%s", log)
	}
	reader := sp.newClaimPod(t, "reader", claim.Name, `cat /data/kept; echo read`)
	sp.awaitUnschedulable(t, reader, "ReadWriteOncePod access mode already in-use by another pod")
	must(t, sp.client.Delete(t.Context(), writer))
	if log := sp.awaitPodLog(t, reader, "read"); log != "kept\nread\n" {
		t.Errorf("the next pod finds %q", log)
	}
	must(t, sp.client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	volume := &corev1.PersistentVolume{}
	must(t, sp.client.Get(t.Context(), client.ObjectKey{Name: claim.Spec.VolumeName}, volume))
	folder := filepath.Dir(volume.Spec.Local.Path)
	sp.onNode(t, "test", "-e", filepath.Join(folder, "disk"))
	if held := sp.mountsAndLoops(t); !strings.Contains(held, "\n"+filepath.Join(folder, "disk")+"\n") {
		t.Errorf("no loop device has the volume's file:\n%s", held)
	}
	must(t, sp.client.Delete(t.Context(), reader))
	must(t, sp.client.Delete(t.Context(), claim))
	sp.awaitGone(t, volume)
	sp.onNode(t, "test", "!", "-e", folder)
	// The API server forgets a pod that has ended at once; the kubelet unmounts its volumes later.
	sp.awaitTrue(t, "end of the mounts and the loop device of volume "+volume.Name, func(context.Context) (bool, error) {
		return !strings.Contains(sp.mountsAndLoops(t), volume.Name), nil
	})
}

// mountsAndLoops lists the node's mounts, and the files that its loop devices have.
func (s *suite) mountsAndLoops(t *testing.T) string {
	t.Helper()
	// A device that is freed in between has no such file.
	return s.onNode(t, "sh", "-c", "cat /proc/mounts; cat /sys/block/loop*/loop/backing_file 2>/dev/null || true")
}

func TestAClaimThatCannotBeBoundSaysWhy(t *testing.T) {
	t.Parallel()
	sp := newBareSpace(t)
	claim := sp.newClaim(t, "huge", "1Pi")
	pod := sp.newClaimPod(t, "waits", claim.Name, "true")
	sp.awaitEvent(t, claim, "ProvisioningFailed", "the machine's disk has no room for the volume")
	sp.awaitUnschedulable(t, pod, `provisioning failed for PVC "huge"`)
	sp.expectPending(t, claim)

	classless := sp.newClaim(t, "classless", "16Mi", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.StorageClassName = ptr.To("no-such-class")
	})
	pod = sp.newClaimPod(t, "waits-too", classless.Name, "true")
	sp.awaitEvent(t, classless, "ProvisioningFailed", `"no-such-class" not found`)
	sp.awaitUnschedulable(t, pod, "unbound immediate PersistentVolumeClaims")
	sp.expectPending(t, classless)
}

func (sp *space) expectPending(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	now := &corev1.PersistentVolumeClaim{}
	must(t, sp.client.Get(t.Context(), keyOf(claim), now))
	if now.Status.Phase != corev1.ClaimPending || now.Spec.VolumeName != "" {
		t.Errorf("claim %s is %s with volume %q", claim.Name, now.Status.Phase, now.Spec.VolumeName)
	}
}

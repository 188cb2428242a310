package faults

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

const (
	environmentName = "tools"
	ledgerMount     = "/ledger"
	// kept is what the policy keeps of each stream: less than some calls write.
	kept = 16384
)

// bed is a test's namespace, held to the restricted Pod Security Standard, with a policy, a default environment,
// and the ledger, which every call of the environment can write to.
type bed struct {
	*suite
	namespace string
	ledger    string
}

func newBed(t *testing.T, adjust ...func(*v1alpha1.ExecutionEnvironmentSpec)) *bed {
	t.Helper()
	s := local(t)
	s.awaitReady(t)
	s.freshOperator(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "faults-" + s.id + "-",
		Labels:       map[string]string{labelRun: s.id, "pod-security.kubernetes.io/enforce": "restricted"},
	}}
	must(t, s.client.Create(t.Context(), namespace))
	b := &bed{suite: s, namespace: namespace.Name, ledger: filepath.Join(s.state, "ledgers", namespace.Name)}
	t.Cleanup(func() { b.takeAway(t, namespace) })
	b.newLedger(t)
	b.newEnvironment(t, adjust...)
	await(t, "default ServiceAccount", func(ctx context.Context) (bool, error) {
		err := s.client.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: "default"}, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
	return b
}

// takeAway removes all that the test made, once the cluster is whole again. The volume is held by its claim, and
// that by the namespace's pods.
func (b *bed) takeAway(t *testing.T, namespace *corev1.Namespace) {
	t.Helper()
	b.awaitReady(t)
	for _, o := range []client.Object{namespace, &corev1.PersistentVolume{}, &v1alpha1.ExecutionPolicy{}} {
		o.SetName(b.namespace)
		b.discard(t, o)
	}
	must(t, os.RemoveAll(b.ledger))
}

// discard deletes, and waits until it is gone.
func (b *bed) discard(t *testing.T, o client.Object) {
	t.Helper()
	await(t, "deletion of "+o.GetName(), func(ctx context.Context) (bool, error) {
		if err := b.client.Delete(ctx, o); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return false, err
		}
		err := b.client.Get(ctx, client.ObjectKeyFromObject(o), o)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// newLedger makes the file that calls write to. A restricted pod gets at a folder of its node through a claim.
func (b *bed) newLedger(t *testing.T) {
	t.Helper()
	must(t, os.MkdirAll(b.ledger, 0o755))
	// The pods' user isn't root.
	must(t, os.Chmod(b.ledger, 0o777))
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: b.namespace, Labels: map[string]string{labelRun: b.id}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Namespace: b.namespace, Name: "ledger"},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: b.ledger}},
		},
	}
	must(t, b.client.Create(t.Context(), volume))
	must(t, b.client.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "ledger"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: volume.Spec.AccessModes, Resources: corev1.VolumeResourceRequirements{Requests: size},
			StorageClassName: ptr.To(""), VolumeName: volume.Name,
		},
	}))
}

func (b *bed) newEnvironment(t *testing.T, adjust ...func(*v1alpha1.ExecutionEnvironmentSpec)) {
	t.Helper()
	policy := &v1alpha1.ExecutionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: b.namespace, Labels: map[string]string{labelRun: b.id}},
		Spec: v1alpha1.ExecutionPolicySpec{
			Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)},
			Code:  &v1alpha1.CodePolicy{DeniedModules: []string{}},
			// All that any call writes can be read, and the status has a part of it.
			Output: &v1alpha1.OutputPolicy{MaxBytesPerStream: ptr.To(int32(kept)), KeepBytesPerStream: ptr.To(int64(wholeStream))},
			// Calls of sessions write nowhere else.
			Files: &v1alpha1.FilesPolicy{WritePaths: []string{"/workspace", "/tmp", ledgerMount}},
		},
	}
	must(t, b.client.Create(t.Context(), policy))
	env := &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.namespace, Name: environmentName,
			Annotations: map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"},
		},
		Spec: v1alpha1.ExecutionEnvironmentSpec{
			Image: toolImage, ImagePullPolicy: corev1.PullIfNotPresent, PolicyRef: &v1alpha1.PolicyReference{Name: policy.Name},
			StartTimeoutSeconds: ptr.To(int32(600)),
			// Two hundred at a time, on two processors, and the operator beside them.
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2m")}},
			Volumes: []corev1.Volume{{Name: "ledger", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "ledger"},
			}}},
			VolumeMounts: []corev1.VolumeMount{{Name: "ledger", MountPath: ledgerMount}},
		},
	}
	for _, change := range adjust {
		change(&env.Spec)
	}
	must(t, b.client.Create(t.Context(), env))
}

// starts counts, for each call, how often its command has started.
func (b *bed) starts(t *testing.T) map[string]int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(b.ledger, "lines"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(raw)) {
		name, _, _ := strings.Cut(line, " ")
		counts[name]++
	}
	return counts
}

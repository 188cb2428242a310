package calls

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
)

// room is a namespace in which one thing is measured.
type room struct {
	client    client.WithWatch
	namespace string
	// environment is nil where no calls run.
	environment *v1alpha1.ExecutionEnvironment
}

// newRoom makes a namespace.
func (p *part) newRoom(ctx context.Context, name string) (*room, error) {
	r := &room{client: p.client, namespace: p.bench.name + "-" + p.name + "-" + name}
	p.rooms = append(p.rooms, r)
	err := cluster.Create(ctx, p.client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   r.namespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}})
	if err != nil {
		return nil, err
	}
	// No Pod is admitted before the namespace has its default account.
	return r, cluster.Eventually(ctx, "the service account default", func(ctx context.Context) (bool, error) {
		err := p.client.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: "default"}, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
}

// newCallRoom makes a namespace with a policy and an environment, and waits until calls can run there.
func (p *part) newCallRoom(
	ctx context.Context, name string, policy v1alpha1.ExecutionPolicySpec, change ...func(*v1alpha1.ExecutionEnvironmentSpec),
) (*room, error) {
	r, err := p.newRoom(ctx, name)
	if err != nil {
		return nil, err
	}
	r.environment = cluster.NewEnvironment(r.namespace, r.namespace, p.image)
	for _, c := range change {
		c(&r.environment.Spec)
	}
	own := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}, Spec: policy}
	if err := cluster.Create(ctx, p.client, own, r.environment.DeepCopy()); err != nil {
		return nil, err
	}
	return r, cluster.AwaitEnvironment(ctx, p.client, r.namespace, r.pool())
}

// pool is how many pods wait here.
func (r *room) pool() int {
	if r.environment == nil || r.environment.Spec.WarmPool == nil {
		return 0
	}
	return int(r.environment.Spec.WarmPool.Size)
}

// clear brings the namespace back to where a sample can begin: what ran has ended by itself, the objects like this one are
// gone with their pods, and the pool, if there is one, is full and nothing in it starts or ends.
func (r *room) clear(ctx context.Context, like client.Object) error {
	if err := cluster.Eventually(ctx, "what ran to end, and the pool to be full", r.idle); err != nil {
		return err
	}
	err := r.client.DeleteAllOf(ctx, like, client.InNamespace(r.namespace), client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil {
		return fmt.Errorf("delete what was measured: %w", err)
	}
	return cluster.Eventually(ctx, "what was measured to be gone", r.empty)
}

// idle says that no pods are alive but those of the full pool.
func (r *room) idle(ctx context.Context) (bool, error) {
	pods := &corev1.PodList{}
	if err := r.client.List(ctx, pods, client.InNamespace(r.namespace)); err != nil {
		return false, err
	}
	alive := 0
	for i := range pods.Items {
		status := &pods.Items[i].Status
		if status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed {
			continue
		}
		if !podReady(status) || pods.Items[i].DeletionTimestamp != nil {
			return false, nil
		}
		alive++
	}
	if alive != r.pool() || r.environment == nil {
		return alive == r.pool(), nil
	}
	warm, _, err := cluster.Pool(ctx, r.client, r.namespace)
	return int(warm.Desired) == alive && int(warm.Ready) == alive, err
}

func podReady(status *corev1.PodStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// empty says that there are no pods and Jobs but those of the pool.
func (r *room) empty(ctx context.Context) (bool, error) {
	pods, err := r.count(ctx, corev1.SchemeGroupVersion.String(), "PodList")
	jobs, err2 := r.count(ctx, batchv1.SchemeGroupVersion.String(), "JobList")
	return pods == r.pool() && jobs == r.pool(), errors.Join(err, err2)
}

func (r *room) count(ctx context.Context, version, kind string) (int, error) {
	objects := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}}
	err := r.client.List(ctx, objects, client.InNamespace(r.namespace))
	return len(objects.Items), err
}

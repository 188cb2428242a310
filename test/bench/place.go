package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// place is the namespace of one kind of samples, with its environment.
type place struct {
	client    client.Client
	namespace string
	// environment is nil where no calls run.
	environment *v1alpha1.ExecutionEnvironment
	// pool is how many pods wait here, 0 where there is no pool.
	pool int
}

func (b *bed) newPlaces(o *options) map[string]*place {
	places := map[string]*place{}
	for _, kind := range o.kinds {
		p := &place{client: b.client, namespace: b.name + "-" + strings.ToLower(kind)}
		if slices.Contains(callKinds, kind) {
			p.environment = environment(p.namespace, b.name, o.image)
		}
		places[kind] = p
	}
	if p := places[kindImage]; p != nil {
		p.environment.Spec.Image, p.environment.Spec.RunnerPath = o.withRunner, o.runnerPath
	}
	if p := places[kindWarm]; p != nil {
		// Filled when it is needed: starting pods would disturb what is measured before.
		p.environment.Spec.WarmPool = &v1alpha1.WarmPool{}
	}
	return places
}

func environment(namespace, policy, image string) *v1alpha1.ExecutionEnvironment {
	return &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bench"},
		Spec: v1alpha1.ExecutionEnvironmentSpec{
			Image: image, ImagePullPolicy: corev1.PullIfNotPresent, PolicyRef: &v1alpha1.PolicyReference{Name: policy},
		},
	}
}

// make creates the place and waits until it can be used.
func (p *place) make(ctx context.Context) error {
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   p.namespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}}
	if p.environment != nil {
		objects = append(objects, p.environment.DeepCopy())
	}
	for _, object := range objects {
		if err := p.client.Create(ctx, object); err != nil {
			return fmt.Errorf("create the benchmark's %T: %w", object, err)
		}
	}
	if err := eventually(ctx, "the service account default", p.hasServiceAccount); err != nil || p.environment == nil {
		return err
	}
	return eventually(ctx, "the environment to be ready (is the operator running?)", p.environmentReady)
}

// hasServiceAccount: no Pod is admitted before the namespace has its default account.
func (p *place) hasServiceAccount(ctx context.Context) (bool, error) {
	err := p.client.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: "default"}, &corev1.ServiceAccount{})
	return err == nil, client.IgnoreNotFound(err)
}

func (p *place) environmentNow(ctx context.Context) (*v1alpha1.ExecutionEnvironment, error) {
	env := &v1alpha1.ExecutionEnvironment{}
	err := p.client.Get(ctx, client.ObjectKeyFromObject(p.environment), env)
	return env, err
}

func (p *place) environmentReady(ctx context.Context) (bool, error) {
	env, err := p.environmentNow(ctx)
	return err == nil && meta.IsStatusConditionTrue(env.Status.Conditions, v1alpha1.ConditionReady), err
}

// resize has that many pods wait, and waits for them.
func (p *place) resize(ctx context.Context, size int) error {
	env, err := p.environmentNow(ctx)
	if err != nil {
		return fmt.Errorf("get the environment: %w", err)
	}
	before := env.DeepCopy()
	env.Spec.WarmPool = &v1alpha1.WarmPool{Size: int32(size)}
	if err := p.client.Patch(ctx, env, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("set the size of the pool: %w", err)
	}
	p.pool = size
	return p.clear(ctx, nil)
}

// clear brings the place back to where a sample can begin: what ran has ended by itself, its objects are gone with
// their pods, and the pool, if there is one, is full and nothing in it starts or ends. None of it is measured.
func (p *place) clear(ctx context.Context, objects client.Object) error {
	if err := eventually(ctx, "what ran to end, and the pool to be full", p.idle); err != nil {
		return err
	}
	if objects != nil {
		err := p.client.DeleteAllOf(ctx, objects, client.InNamespace(p.namespace), client.PropagationPolicy(metav1.DeletePropagationBackground))
		if err != nil {
			return fmt.Errorf("delete what was measured: %w", err)
		}
	}
	return eventually(ctx, "what was measured to be gone", p.empty)
}

// idle says that no pods are alive but those of the full pool.
func (p *place) idle(ctx context.Context) (bool, error) {
	pods := &corev1.PodList{}
	if err := p.client.List(ctx, pods, client.InNamespace(p.namespace)); err != nil {
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
	if alive != p.pool || p.environment == nil {
		return alive == p.pool, nil
	}
	env, err := p.environmentNow(ctx)
	if err != nil {
		return false, err
	}
	warm := env.Status.Warm
	return p.pool == 0 || warm != nil && int(warm.Desired) == p.pool && int(warm.Ready) == p.pool, nil
}

func podReady(status *corev1.PodStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// empty says that there are no pods and Jobs but those of the pool.
func (p *place) empty(ctx context.Context) (bool, error) {
	pods, err := p.count(ctx, corev1.SchemeGroupVersion.String(), "PodList")
	jobs, err2 := p.count(ctx, batchv1.SchemeGroupVersion.String(), "JobList")
	return pods == p.pool && jobs == p.pool, errors.Join(err, err2)
}

func (p *place) count(ctx context.Context, version, kind string) (int, error) {
	objects := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}}
	err := p.client.List(ctx, objects, client.InNamespace(p.namespace))
	return len(objects.Items), err
}

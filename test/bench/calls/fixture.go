package calls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
)

// fixture is what one kind of samples needs: a namespace, for calls an environment in it, and what is measured there.
type fixture struct {
	cluster.Subject
	kind   string
	client client.Client
	// environment is nil where no calls run.
	environment *v1alpha1.ExecutionEnvironment
	// pool is how many pods wait here, 0 where there is no pool.
	pool int
}

// newFixtures are what a round measures, in order.
func newFixtures(c *Command, on client.Client, name string) ([]*fixture, error) {
	spec, err := bareSpec(cluster.NewEnvironment("bare", "bare", c.image))
	if err != nil {
		return nil, err
	}
	var fixtures []*fixture
	for _, kind := range allKinds {
		if !slices.Contains(c.kinds, kind) {
			continue
		}
		f := &fixture{kind: kind, client: on, Subject: subjectOf(kind, name+"-"+strings.ToLower(kind), spec)}
		if slices.Contains(callKinds, kind) {
			f.environment = cluster.NewEnvironment(f.Namespace, name, c.image)
		}
		switch kind {
		case kindImage:
			f.environment.Spec.Image, f.environment.Spec.RunnerPath = c.withRunner, c.runnerPath
		case kindWarm, kindHeld:
			// Filled when it is needed: starting pods would disturb what is measured before.
			f.environment.Spec.WarmPool = &v1alpha1.WarmPool{}
		}
		fixtures = append(fixtures, f)
	}
	return fixtures, nil
}

// create makes the namespace with its environment, and waits until it can be used.
func (f *fixture) create(ctx context.Context) error {
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   f.Namespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}}
	if f.environment != nil {
		objects = append(objects, f.environment.DeepCopy())
	}
	if f.kind == kindHeld {
		objects[1].(*v1alpha1.ExecutionEnvironment).Spec.PolicyRef = &v1alpha1.PolicyReference{Name: f.Namespace}
	}
	if err := cluster.Create(ctx, f.client, objects...); err != nil {
		return err
	}
	if f.kind == kindHeld {
		if err := cluster.Create(ctx, f.client, listOfPrograms(objects[0])); err != nil {
			return err
		}
	}
	if err := cluster.Eventually(ctx, "the service account default", f.hasServiceAccount); err != nil || f.environment == nil {
		return err
	}
	return cluster.AwaitEnvironment(ctx, f.client, f.Namespace, 0)
}

// listOfPrograms is a policy that goes when its namespace does.
func listOfPrograms(namespace client.Object) *v1alpha1.ExecutionPolicy {
	return &v1alpha1.ExecutionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: namespace.GetName(), OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Namespace", Name: namespace.GetName(), UID: namespace.GetUID()},
		}},
		Spec: v1alpha1.ExecutionPolicySpec{
			Access:   v1alpha1.AccessOpen,
			Binaries: &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Allowed: []string{"true", "ls", "git", "python3"}},
		},
	}
}

// hasServiceAccount: no Pod is admitted before the namespace has its default account.
func (f *fixture) hasServiceAccount(ctx context.Context) (bool, error) {
	err := f.client.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: "default"}, &corev1.ServiceAccount{})
	return err == nil, client.IgnoreNotFound(err)
}

// resize has that many pods wait, and waits for them.
func (f *fixture) resize(ctx context.Context, size int) error {
	if err := cluster.SetPool(ctx, f.client, f.Namespace, size); err != nil {
		return err
	}
	f.pool = size
	return f.clear(ctx)
}

// clear brings the namespace back to where a sample can begin: what ran has ended by itself, its objects are gone with
// their pods, and the pool, if there is one, is full and nothing in it starts or ends. None of it is measured.
func (f *fixture) clear(ctx context.Context) error {
	if err := cluster.Eventually(ctx, "what ran to end, and the pool to be full", f.idle); err != nil {
		return err
	}
	err := f.client.DeleteAllOf(ctx, f.Make(""), client.InNamespace(f.Namespace), client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil {
		return fmt.Errorf("delete what was measured: %w", err)
	}
	return cluster.Eventually(ctx, "what was measured to be gone", f.empty)
}

// idle says that no pods are alive but those of the full pool.
func (f *fixture) idle(ctx context.Context) (bool, error) {
	pods := &corev1.PodList{}
	if err := f.client.List(ctx, pods, client.InNamespace(f.Namespace)); err != nil {
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
	if alive != f.pool || f.environment == nil {
		return alive == f.pool, nil
	}
	warm, _, err := cluster.Pool(ctx, f.client, f.Namespace)
	return int(warm.Desired) == f.pool && int(warm.Ready) == f.pool, err
}

func podReady(status *corev1.PodStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// empty says that there are no pods and Jobs but those of the pool.
func (f *fixture) empty(ctx context.Context) (bool, error) {
	pods, err := f.count(ctx, corev1.SchemeGroupVersion.String(), "PodList")
	jobs, err2 := f.count(ctx, batchv1.SchemeGroupVersion.String(), "JobList")
	return pods == f.pool && jobs == f.pool, errors.Join(err, err2)
}

func (f *fixture) count(ctx context.Context, version, kind string) (int, error) {
	objects := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}}
	err := f.client.List(ctx, objects, client.InNamespace(f.Namespace))
	return len(objects.Items), err
}

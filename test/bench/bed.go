package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// patience bounds each wait for something that should take seconds.
const patience = 2 * time.Minute

// poll is the time between two looks where no watch is worth it.
const poll = 100 * time.Millisecond

// bed is the place on the cluster where the benchmark runs: a namespace and a policy of its own, so that
// nobody's quota, default environment or default policy takes part.
type bed struct {
	client    client.WithWatch
	clients   kubernetes.Interface
	namespace string
	image     string
}

func newBed(o *options) (*bed, error) {
	conf, err := restConfig()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("build the scheme: %w", err)
	}
	watching, err := client.NewWithWatch(conf, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	clients, err := kubernetes.NewForConfig(conf)
	if err != nil {
		return nil, fmt.Errorf("make the API client: %w", err)
	}
	return &bed{client: watching, clients: clients, namespace: "toolcall-bench-" + rand.String(5), image: o.image}, nil
}

// restConfig is kubectl's way to the cluster, without a limit on requests: waiting for one would be measured.
func restConfig() (*rest.Config, error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	conf, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	conf.QPS = -1
	return conf, nil
}

// prepare makes the namespace, the policy and the environment, and waits until calls can run.
func (b *bed) prepare(ctx context.Context) error {
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:   b.namespace,
			Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		}},
		&v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}},
		b.environment(),
	} {
		if err := b.client.Create(ctx, object); err != nil {
			return fmt.Errorf("create the benchmark's %T: %w", object, err)
		}
	}
	return errors.Join(
		b.eventually(ctx, "the service account default", b.hasServiceAccount),
		b.eventually(ctx, "the environment to be ready (is the operator running?)", b.environmentReady),
	)
}

func (b *bed) environment() *v1alpha1.ExecutionEnvironment {
	return &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "bench"},
		Spec: v1alpha1.ExecutionEnvironmentSpec{
			Image:           b.image,
			ImagePullPolicy: corev1.PullIfNotPresent,
			PolicyName:      b.namespace,
		},
	}
}

// hasServiceAccount: no Pod is admitted before the namespace has its default account.
func (b *bed) hasServiceAccount(ctx context.Context) (bool, error) {
	err := b.client.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: "default"}, &corev1.ServiceAccount{})
	return err == nil, client.IgnoreNotFound(err)
}

func (b *bed) environmentReady(ctx context.Context) (bool, error) {
	env := b.environment()
	err := b.client.Get(ctx, client.ObjectKeyFromObject(env), env)
	return err == nil && meta.IsStatusConditionTrue(env.Status.Conditions, v1alpha1.ConditionReady), err
}

// noPods says that nothing of an earlier sample is left that could disturb the next one.
func (b *bed) noPods(ctx context.Context) (bool, error) {
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	err := b.client.List(ctx, pods, client.InNamespace(b.namespace), client.Limit(1))
	return err == nil && len(pods.Items) == 0, err
}

// eventually looks until something is there.
func (b *bed) eventually(ctx context.Context, what string, there func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		ok, err := there(ctx)
		if ok {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case <-time.After(poll):
		}
	}
}

// remove deletes the namespace with all that is in it, and the policy; also after an interrupt.
func (b *bed) remove(progress io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	fmt.Fprintln(progress, "bench: removing namespace "+b.namespace)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}
	policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}
	err := errors.Join(
		client.IgnoreNotFound(b.client.Delete(ctx, namespace)),
		client.IgnoreNotFound(b.client.Delete(ctx, policy)),
	)
	if err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return b.eventually(ctx, "the namespace to be gone", func(ctx context.Context) (bool, error) {
		err := b.client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

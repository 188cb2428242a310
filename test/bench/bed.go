package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// bed is where the benchmark runs on the cluster: namespaces and a policy of its own, so that nobody's quota,
// default environment or default policy takes part. Each kind of sample has a namespace to itself: what is seen
// there, and what the operator writes there, belongs to it.
type bed struct {
	client  client.WithWatch
	clients kubernetes.Interface
	// name is the policy's, and the beginning of the namespaces'.
	name     string
	places   map[string]*place
	subjects []subject
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
	b := &bed{client: watching, clients: clients, name: "toolcall-bench-" + rand.String(5)}
	b.places = b.newPlaces(o)
	b.subjects, err = newSubjects(o, b.places)
	return b, err
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

// prepare makes the policy and the places of what is measured, and waits until calls can run.
func (b *bed) prepare(ctx context.Context) error {
	policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: b.name}}
	if err := b.client.Create(ctx, policy); err != nil {
		return fmt.Errorf("create the benchmark's policy: %w", err)
	}
	for _, s := range b.subjects {
		if err := b.prepareSubject(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) prepareSubject(ctx context.Context, s subject) error {
	if err := s.place.make(ctx); err != nil {
		return err
	}
	if s.kind != kindFloor {
		return nil
	}
	return b.answerSkills(ctx, s.place.namespace)
}

// eventually looks until something is there.
func eventually(ctx context.Context, what string, there func(context.Context) (bool, error)) error {
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

// remove deletes the namespaces with all that is in them, and the policy; also after an interrupt.
func (b *bed) remove(progress io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	fmt.Fprintln(progress, "bench: removing namespaces "+b.name+"-...")
	policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: b.name}}
	failures := []error{client.IgnoreNotFound(b.client.Delete(ctx, policy))}
	for _, p := range b.places {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
		failures = append(failures, client.IgnoreNotFound(b.client.Delete(ctx, namespace)))
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	for _, p := range b.places {
		err := eventually(ctx, "namespace "+p.namespace+" to be gone", func(ctx context.Context) (bool, error) {
			err := b.client.Get(ctx, client.ObjectKey{Name: p.namespace}, &corev1.Namespace{})
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

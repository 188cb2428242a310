// Package cluster is what the benchmark's commands share on the API: clients that nothing slows down, the objects that
// are measured, and the wait for their ends. It creates nothing but what it is told to.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/testing/apiservertest"
)

const (
	// patience bounds each wait for something that should take seconds.
	patience = 2 * time.Minute
	// poll is the time between two looks where no watch is worth it.
	poll = 100 * time.Millisecond
)

// Connect makes a client for the kinds of Kubernetes and of this project.
func Connect(conf *rest.Config) (client.WithWatch, error) {
	return ConnectFor(conf, apiservertest.Scheme())
}

// ConnectFor makes a client for the kinds of a scheme. It has no limit on requests, since waiting for one would be
// measured, and a connection of its own: with its own dialer, client-go doesn't share an earlier client's.
func ConnectFor(conf *rest.Config, scheme *runtime.Scheme) (client.WithWatch, error) {
	conf = rest.CopyConfig(conf)
	conf.QPS = -1
	conf.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	c, err := client.NewWithWatch(conf, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	return c, nil
}

// Create creates objects, one after the other.
func Create(ctx context.Context, c client.Client, objects ...client.Object) error {
	for _, o := range objects {
		if err := c.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// Eventually looks until something is there.
func Eventually(ctx context.Context, what string, there wait.ConditionWithContextFunc) error {
	if err := wait.PollUntilContextTimeout(ctx, poll, patience, true, there); err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

// Spread calls do with 0 to n-1, so many at the same time, until all have returned or one has failed.
func Spread(ctx context.Context, n, atOnce int, do func(ctx context.Context, i int) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := 0; i < n && groupCtx.Err() == nil; i++ {
		group.Go(func() error { return do(groupCtx, i) })
	}
	return cmp.Or(group.Wait(), ctx.Err())
}

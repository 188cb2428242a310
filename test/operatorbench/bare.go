package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/internal/figures"
)

const bareNamespace = "bench-bare"

// pattern is what a call leaves in the API, to be written again.
type pattern struct {
	status *v1alpha1.ToolCallStatus
	job    *batchv1.Job
	secret *corev1.Secret
}

// bareWrites makes the objects and the status writes of cold calls once more, by a program that does nothing else: no
// operator, nobody who watches, no runner. That is what this machine's API server can take, and so the most that any
// operator with these writes could reach here.
func (b *bench) bareWrites(ctx context.Context) error {
	p, err := b.patternOf(ctx, "bench-"+partCold)
	if err != nil {
		return err
	}
	if err := b.stopManager(); err != nil {
		return err
	}
	b.say("%s: the writes of %d cold calls, %d at a time", partBare, b.options.calls, b.options.inFlight)
	before, err := processTimes()
	if err != nil {
		return err
	}
	done, err := b.writeAll(ctx, p, bareNamespace, b.options.calls, b.options.inFlight)
	if err != nil {
		return err
	}
	after, err := processTimes()
	if err != nil {
		return err
	}
	calls := float64(b.options.calls)
	b.report.Bare = &bareResult{
		Calls: b.options.calls, CallsPerSecond: calls / done.took.Seconds(), Latency: figures.Summarize(done.latencies),
		CPU: cpuPerCall(before, after, calls),
	}
	b.say("%s: %.1f calls/s", partBare, b.report.Bare.CallsPerSecond)
	return b.startManager(ctx)
}

// patternOf takes a call that has ended for the pattern of all.
func (b *bench) patternOf(ctx context.Context, namespace string) (*pattern, error) {
	calls := &v1alpha1.ToolCallList{}
	if err := b.server.client.List(ctx, calls, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return nil, fmt.Errorf("find a call for a pattern in %s: %w", namespace, err)
	}
	if len(calls.Items) == 0 {
		return nil, fmt.Errorf("no call in %s is left for a pattern", namespace)
	}
	call := &calls.Items[0]
	p := &pattern{status: &call.Status, job: &batchv1.Job{}, secret: &corev1.Secret{}}
	key := client.ObjectKey{Namespace: namespace, Name: call.Status.Job}
	err := errors.Join(b.server.client.Get(ctx, key, p.job), b.server.client.Get(ctx, key, p.secret))
	if err != nil {
		return nil, fmt.Errorf("get what was made for call %s: %w", call.Name, err)
	}
	p.job.Spec.Selector = nil
	for _, label := range []string{batchv1.ControllerUidLabel, batchv1.JobNameLabel, "controller-uid", "job-name"} {
		delete(p.job.Spec.Template.Labels, label)
	}
	return p, nil
}

// anew is an object's metadata without what the API server gave it.
func anew(o metav1.ObjectMeta, namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: o.Labels, Annotations: o.Annotations}
}

// writeAll makes the writes of a number of calls in a namespace of their own.
func (b *bench) writeAll(ctx context.Context, p *pattern, namespace string, calls, inFlight int) (*outcome, error) {
	err := b.server.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if err != nil {
		return nil, fmt.Errorf("create namespace %s: %w", namespace, err)
	}
	o := &outcome{latencies: make([]float64, calls)}
	failures := make([]error, inFlight)
	n := newNode(b.server, namespace)
	var next atomic.Int64
	var writing sync.WaitGroup
	began := time.Now()
	for i := range inFlight {
		writing.Go(func() {
			for k := next.Add(1); k <= int64(calls) && failures[i] == nil; k = next.Add(1) {
				start := time.Now()
				failures[i] = b.writeOne(ctx, n, p, namespace, fmt.Sprintf("call-%06d", k))
				o.latencies[k-1] = time.Since(start).Seconds()
			}
		})
	}
	writing.Wait()
	o.took = time.Since(began)
	return o, errors.Join(failures...)
}

// writeOne makes the eight writes of one cold call: the client's, the operator's four, and those of Job controller and
// kubelet.
func (b *bench) writeOne(ctx context.Context, n *node, p *pattern, namespace, name string) error {
	c := b.server.client
	call := newCall(namespace, name)
	job := &batchv1.Job{ObjectMeta: anew(p.job.ObjectMeta, namespace, "tc-"+name), Spec: *p.job.Spec.DeepCopy()}
	if err := errors.Join(c.Create(ctx, call), b.server.operator.Create(ctx, job)); err != nil {
		return fmt.Errorf("create call %s and its Job: %w", name, err)
	}
	secret := &corev1.Secret{ObjectMeta: anew(p.secret.ObjectMeta, namespace, job.Name), Immutable: p.secret.Immutable, Data: p.secret.Data}
	secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID}}
	if err := b.server.operator.Create(ctx, secret); err != nil {
		return fmt.Errorf("create the Secret of %s: %w", name, err)
	}
	pod := podOf(job)
	if err := n.pods.Create(ctx, pod); err != nil {
		return fmt.Errorf("create the pod of %s: %w", name, err)
	}
	ended := *p.status.DeepCopy()
	started := *p.status.DeepCopy()
	started.Phase, started.Reason, started.Message = v1alpha1.PhaseRunning, "", ""
	started.Stdout, started.Output, started.Streams, started.ExitCode = "", "", nil, nil
	for _, status := range []v1alpha1.ToolCallStatus{started, ended} {
		before := call.DeepCopy()
		call.Status = status
		if err := c.Status().Patch(ctx, call, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("write the status of %s: %w", name, err)
		}
	}
	if err := n.ended(ctx, pod); err != nil {
		return err
	}
	return n.complete(ctx, job)
}

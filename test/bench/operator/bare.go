package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/standalone"
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
	b.say("%s: the writes of %d cold calls, %d at a time", partBare, b.calls, b.inFlight)
	var done *outcome
	used, _, err := standalone.During(func() (err error) {
		done, err = b.writeAll(ctx, p, bareNamespace, b.calls, b.inFlight)
		return err
	})
	if err != nil {
		return err
	}
	bare := newPart(partBare, done, used)
	b.report.Parts = append(b.report.Parts, bare)
	b.say("%s: %.1f calls/s", partBare, bare.CallsPerSecond)
	return nil
}

// patternOf takes a call that has ended for the pattern of all.
func (b *bench) patternOf(ctx context.Context, namespace string) (*pattern, error) {
	calls := &v1alpha1.ToolCallList{}
	if err := b.client.List(ctx, calls, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return nil, fmt.Errorf("find a call for a pattern in %s: %w", namespace, err)
	}
	if len(calls.Items) == 0 {
		return nil, fmt.Errorf("no call in %s is left for a pattern", namespace)
	}
	call := &calls.Items[0]
	p := &pattern{status: &call.Status, job: &batchv1.Job{}, secret: &corev1.Secret{}}
	key := client.ObjectKey{Namespace: namespace, Name: call.Status.Job}
	err := errors.Join(b.client.Get(ctx, key, p.job), b.client.Get(ctx, key, p.secret))
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
	err := cluster.Create(ctx, b.client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if err != nil {
		return nil, err
	}
	o := &outcome{latencies: make([]float64, calls)}
	began := time.Now()
	err = cluster.Spread(ctx, calls, inFlight, func(ctx context.Context, i int) error {
		start := time.Now()
		defer func() { o.latencies[i] = time.Since(start).Seconds() }()
		return writeOne(ctx, b.client, p, metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("call-%06d", i)})
	})
	o.took = time.Since(began)
	return o, err
}

// writeOne makes the eight writes of one cold call: the client's, the operator's four, and those of Job controller and
// kubelet.
func writeOne(ctx context.Context, c client.Client, p *pattern, at metav1.ObjectMeta) error {
	call, name := cluster.NewCall(at).(*v1alpha1.ToolCall), "tc-"+at.Name
	job := &batchv1.Job{ObjectMeta: anew(p.job.ObjectMeta, at.Namespace, name), Spec: *p.job.Spec.DeepCopy()}
	secret := &corev1.Secret{ObjectMeta: anew(p.secret.ObjectMeta, at.Namespace, name), Immutable: p.secret.Immutable, Data: p.secret.Data}
	if err := cluster.Create(ctx, c, call, job, secret); err != nil {
		return err
	}
	pod := podOf(job)
	if err := cluster.Create(ctx, c, pod); err != nil {
		return err
	}
	ended := *p.status.DeepCopy()
	started := *p.status.DeepCopy()
	started.Phase, started.Reason, started.Message = v1alpha1.PhaseRunning, "", ""
	started.Stdout, started.Output, started.Streams, started.ExitCode = "", "", nil, nil
	for _, status := range []v1alpha1.ToolCallStatus{started, ended} {
		if err := cluster.PatchStatus(ctx, c, call, status); err != nil {
			return err
		}
	}
	if err := endPod(ctx, c, pod); err != nil {
		return err
	}
	return completeJob(ctx, c, job)
}

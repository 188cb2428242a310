package operator

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
)

// pattern is what a call leaves in the API, to be written again.
type pattern struct {
	status *v1alpha1.ToolCallStatus
	job    *batchv1.Job
	secret *corev1.Secret
}

// take takes a call that has ended for the pattern of all.
func (p *pattern) take(ctx context.Context, c client.Client, name string) error {
	call := &v1alpha1.ToolCall{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, call); err != nil {
		return fmt.Errorf("get a call for a pattern: %w", err)
	}
	p.status, p.job, p.secret = &call.Status, &batchv1.Job{}, &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: call.Status.Job}
	if err := errors.Join(c.Get(ctx, key, p.job), c.Get(ctx, key, p.secret)); err != nil {
		return fmt.Errorf("get what was made for call %s: %w", name, err)
	}
	p.job.Spec.Selector = nil
	for _, label := range []string{batchv1.ControllerUidLabel, batchv1.JobNameLabel, "controller-uid", "job-name"} {
		delete(p.job.Spec.Template.Labels, label)
	}
	return nil
}

// anew is an object's metadata without what the API server gave it.
func anew(o metav1.ObjectMeta, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: o.Labels, Annotations: o.Annotations}
}

// write makes the eight writes of one cold call: the client's, the operator's four, and those of Job controller and
// kubelet. That is what this machine's API server can take from a program that does nothing else, and so the most that
// any operator with these writes could reach here.
func (p *pattern) write(ctx context.Context, c client.Client, name string) error {
	call, child := cluster.NewCall(namespace, name), "tc-"+name
	job := &batchv1.Job{ObjectMeta: anew(p.job.ObjectMeta, child), Spec: *p.job.Spec.DeepCopy()}
	secret := &corev1.Secret{ObjectMeta: anew(p.secret.ObjectMeta, child), Immutable: p.secret.Immutable, Data: p.secret.Data}
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

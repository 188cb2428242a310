package operator

import (
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/measure"
)

func TestAPodsVariablesAreResolvedAsAKubeletDoes(t *testing.T) {
	t.Parallel()
	fieldRef := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "j", UID: "job-uid"}}
	job.Spec.Template.Labels = map[string]string{batchv1.ControllerUidLabel: "job-uid"}
	job.Spec.Template.Spec.Containers = []corev1.Container{{Env: []corev1.EnvVar{
		{Name: wire.EnvCall, Value: "c"},
		{Name: wire.EnvToken, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "token"}}},
		{Name: wire.EnvJobUID, ValueFrom: fieldRef("metadata.labels['" + batchv1.ControllerUidLabel + "']")},
		{Name: wire.EnvPodUID, ValueFrom: fieldRef("metadata.uid")},
		{Name: wire.EnvNode, ValueFrom: fieldRef("spec.nodeName")},
	}}}
	pod := podOf(job)
	pod.UID = "pod-uid"
	want := map[string]string{
		wire.EnvCall: "c", wire.EnvToken: "secret", wire.EnvJobUID: "job-uid", wire.EnvPodUID: "pod-uid", wire.EnvNode: cluster.NodeName,
	}
	if diff := cmp.Diff(want, containerEnv(pod, "secret")); diff != "" {
		t.Error(diff)
	}
	if !metav1.IsControlledBy(pod, job) || job.Spec.Template.Spec.NodeName != "" {
		t.Errorf("the pod is %+v, the Job's template %+v", pod.ObjectMeta, job.Spec.Template.Spec)
	}
}

// measured runs parts with few calls.
func measured(t *testing.T, args ...string) *measure.Report {
	t.Helper()
	apiservertest.Needs(t)
	apiservertest.Reads(t, "config")
	t.Chdir("../../..")
	var c Command
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	c.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	r := measure.NewReport("", t.Output())
	if err := errors.Join(c.Measure(t.Context(), r), r.Err()); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheFloorIsMeasuredBesideAnotherCheckouts(t *testing.T) {
	r := measured(t, "-only", "floor", "-calls", "100", "-beside", "./.")
	var rows []string
	for _, row := range r.Rows {
		rows = append(rows, row.Name+", "+row.Unit)
		if row.Min < 0 || row.P50 <= 0 && row.Unit != "ms CPU of etcd/call" {
			t.Errorf("got %+v", row)
		}
		if ours := !strings.Contains(row.Name, "(./.)"); ours != (len(row.Against) == 1) {
			t.Errorf("%s is compared with %+v", row.Name, row.Against)
		}
	}
	var want []string
	for _, build := range []string{" (./.)", ""} {
		want = append(want, "floor, one at a time"+build+", s")
		for _, unit := range []string{"calls/s", "ms CPU of API server/call", "ms CPU of etcd/call"} {
			want = append(want, "floor, 32 at once"+build+", "+unit)
		}
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
}

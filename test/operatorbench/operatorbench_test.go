package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/test/internal/figures"
)

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-calls", "0"}, {"-in-flight", "0"}, {"-pool", "201"}, {"-finished", "-1"}, {"-output-bytes", "-1"},
		{"-probes", "0"}, {"-qps", "-1"}, {"-idle", "-1s"}, {"-only", "hot"}, {"-only", ""}, {"-only", "bare,warm"}, {"more"}, {"-nope"},
	} {
		if _, err := parse(args, new(strings.Builder)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	o, err := parse([]string{"-only", "warm,finished"}, new(strings.Builder))
	if err != nil || o.has(partCold) || !o.has(partWarm) || !o.has(partFinished) {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestCPUTimeIsReadWhateverTheProcessIsCalled(t *testing.T) {
	t.Parallel()
	stat := "42 (a) b (c) S 1 42 42 0 -1 4194304 100 0 0 0 123 45 0 0 20 0 9 0 100 1000 10"
	got, err := parseCPU([]byte(stat))
	if err != nil || got != 1680*time.Millisecond {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "42 (a) S 1", strings.ReplaceAll(stat, "123", "x")} {
		if got, err := parseCPU([]byte(bad)); err == nil {
			t.Errorf("%q gives %v", bad, got)
		}
	}
	own, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Skip("no /proc here")
	}
	if _, err := parseCPU(own); err != nil {
		t.Error(err)
	}
}

func TestProcessesAreKnownByTheirParent(t *testing.T) {
	t.Parallel()
	if name, parent := parseParent([]byte("42 (a) b (c) S 17 42 42 0")); name != "a) b (c" || parent != 17 {
		t.Errorf("got %q, %d", name, parent)
	}
	for _, bad := range []string{"", "42 a S 1", ")(", "42 (a)"} {
		if _, parent := parseParent([]byte(bad)); parent != 0 {
			t.Errorf("%q has a parent", bad)
		}
	}
	before := map[string]time.Duration{"a": time.Second, "gone": time.Second}
	used := cpuPerCall(before, map[string]time.Duration{"a": 3 * time.Second, "new": time.Second}, 100)
	if diff := cmp.Diff(map[string]float64{"a": 20}, used); diff != "" {
		t.Error(diff)
	}
	// The kernel counts in hundredths of a second: looking takes one sooner or later.
	for range 10_000 {
		times, err := processTimes()
		if err != nil {
			t.Fatal(err)
		}
		if times[processBenchmark] > 0 {
			return
		}
	}
	t.Error("this process uses no CPU time")
}

func TestAMetricIsFoundByItsWholeName(t *testing.T) {
	t.Parallel()
	text := []byte("# HELP a b\na_bytes_total 7\na_bytes 1.5e+07\n")
	if got, err := metric(text, "a_bytes"); err != nil || got != 15e6 {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := metric(text, "a"); err == nil {
		t.Errorf("got %v", got)
	}
}

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
		wire.EnvCall: "c", wire.EnvToken: "secret", wire.EnvJobUID: "job-uid", wire.EnvPodUID: "pod-uid", wire.EnvNode: nodeName,
	}
	if diff := cmp.Diff(want, containerEnv(pod, "secret")); diff != "" {
		t.Error(diff)
	}
	if !metav1.IsControlledBy(pod, job) || job.Spec.Template.Spec.NodeName != "" {
		t.Errorf("the pod is %+v, the Job's template %+v", pod.ObjectMeta, job.Spec.Template.Spec)
	}
}

func TestFinishedCallsHaveTheOutputThatWasAskedFor(t *testing.T) {
	t.Parallel()
	for _, bytes := range []int{0, 1, 39, 4096} {
		status := finishedStatus("x", bytes)
		if len(status.Stdout) != bytes || !status.Phase.Terminal() || !strings.HasPrefix(status.Output, status.Stdout) {
			t.Errorf("%d bytes: got %d, phase %s", bytes, len(status.Stdout), status.Phase)
		}
	}
}

func TestCostsArePerCall(t *testing.T) {
	t.Parallel()
	done := &outcome{latencies: []float64{0.1, 0.3, 0.2, 0.4}, warm: 3, took: 2 * time.Second}
	writes := &figures.Writes{ByName: map[string]int{"create jobs": 4, "patch toolcalls/status": 8}, Refused: 1}
	got := newThroughput(partWarm, done, map[string]float64{processOperator: 2.5}, writes, memory{RSS: 1}, memory{RSS: 2})
	if got.CallsPerSecond != 2 || got.CPU[processOperator] != 2.5 || got.WritesPerCall != 3 || got.WarmShare != 0.75 || got.Latency.P50 != 0.2 {
		t.Errorf("got %+v", got)
	}
	r := &report{Parts: []*throughput{got}, Finished: &finishedResult{Calls: 50000}, Bare: &bareResult{Calls: 4, CallsPerSecond: 8}}
	out := new(strings.Builder)
	r.print(out, true)
	for _, part := range []string{"| warm | 4 | 2.0 |", "| warm | 2.50 |  |  |  | 2.50 |", "without an operator | 4 | 8.0 |", "| warm: create jobs | 1.00 |", "| 50000 | 0 |"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is not in\n%s", part, out)
		}
	}
	file := filepath.Join(t.TempDir(), "saved.json")
	saved := new(strings.Builder)
	if err := figures.Save(file, r); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"-from", file, "-markdown"}, saved, saved); err != nil || saved.String() != out.String() {
		t.Errorf("%v; from the file it is\n%s", err, saved)
	}
	if err := run(t.Context(), []string{"-from", file + "x"}, saved, saved); err == nil {
		t.Error("a file that isn't there is printed")
	}
}

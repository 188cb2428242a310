package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPercentilesAreMeasuredValues(t *testing.T) {
	t.Parallel()
	var samples []sample
	for i := 30; i > 0; i-- {
		samples = append(samples, sample{Kind: kindJob, Seconds: float64(i)}, sample{Kind: kindPod, Seconds: 1000})
	}
	want := summary{Count: 30, Min: 1, P50: 15, P90: 27, P99: 30, Max: 30}
	if diff := cmp.Diff(want, summarize(samples, kindJob, total)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(summary{}, summarize(samples, kindCall, total)); diff != "" {
		t.Error(diff)
	}
	one := summarize(samples[:2], kindPod, total)
	if one.P50 != 1000 || one.P99 != 1000 {
		t.Errorf("of a single value every percentile is that value, not %+v", one)
	}
}

func TestAuditCountsTheOperatorsWritesOfTheBenchmarkOnly(t *testing.T) {
	t.Parallel()
	const line = `{"stage":"%STAGE","verb":"%VERB","requestReceivedTimestamp":"%TIME","user":{"username":"%USER"},"objectRef":{"resource":"%RES","subresource":"%SUB","namespace":"%NS"},"responseStatus":{"code":%CODE}}`
	event := func(changes ...string) string {
		text := line
		for i := 0; i < len(changes); i += 2 {
			text = strings.ReplaceAll(text, changes[i], changes[i+1])
		}
		return strings.NewReplacer("%STAGE", "ResponseComplete", "%VERB", "patch", "%TIME", "2026-01-01T00:00:05.000000Z",
			"%USER", "op", "%RES", "toolcalls", "%SUB", "status", "%NS", "bench", "%CODE", "200").Replace(text) + "\n"
	}
	log := event() + event() +
		event("%VERB", "create", "%RES", "jobs", "%SUB", "", "%CODE", "201") +
		event("%VERB", "create", "%RES", "subjectaccessreviews", "%SUB", "", "%NS", "") +
		event("%CODE", "409") +
		event("%VERB", "get") +
		event("%NS", "other") +
		event("%USER", "kubelet and op") +
		event("%STAGE", "ResponseStarted") +
		event("%TIME", "2025-12-31T23:59:59.000000Z") +
		`{"user":{"username":"op"},"verb":"pat`
	since, err := time.Parse(time.RFC3339, "2026-01-01T00:00:00Z")
	if err != nil {
		t.Fatal(err)
	}
	c := &auditCounter{namespace: "bench", user: "op", since: since}
	sum := &auditSum{writes: map[string]int{}}
	if err := c.countEvents(strings.NewReader(log), sum); err != nil {
		t.Fatal(err)
	}
	got := sum.report(2)
	if diff := cmp.Diff(map[string]float64{"patch toolcalls/status": 1, "create jobs": 0.5}, got.PerCall); diff != "" {
		t.Error(diff)
	}
	if got.ReviewsPerCall != 0.5 || got.Refused != 1 || got.total() != 1.5 {
		t.Errorf("got %+v", got)
	}
}

func TestMetricsCountWritesByMethod(t *testing.T) {
	t.Parallel()
	text := `# HELP rest_client_requests_total Number of HTTP requests
rest_client_requests_total{code="200",host="10.96.0.1:443",method="GET"} 99
rest_client_requests_total{code="200",host="10.96.0.1:443",method="PATCH"} 6
rest_client_requests_total{code="409",host="10.96.0.1:443",method="PATCH"} 1
rest_client_requests_total{code="201",host="10.96.0.1:443",method="POST"} 4
rest_client_requests_total{code="200",host="10.96.0.1:443",method="PUT"} 50
toolcall_calls_finished_total{phase="Failed",reason="NonZeroExit"} 1
toolcall_calls_finished_total{phase="Succeeded",reason="Completed"} 2
`
	got := &clientMetrics{writes: map[string]float64{}}
	if err := got.add([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"PATCH": 6, "POST": 4}, got.writes); diff != "" {
		t.Error(diff)
	}
	if got.refused != 1 || got.finished != 3 {
		t.Errorf("got %+v", got)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-n", "0"}, {"-parallel", "-1"}, {"-parallel", "201"}, {"more"}, {"-nope"}} {
		if _, err := parse(args, new(strings.Builder)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	o, err := parse([]string{"-n", "3"}, new(strings.Builder))
	if err != nil || o.rounds != 3 || o.operatorUser() != "system:serviceaccount:toolcall-system:toolcall-operator" {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestBarePodIsTheOperatorsPodWithoutTheRunner(t *testing.T) {
	t.Parallel()
	b := &bed{namespace: "bench", image: "i:1"}
	spec, err := bareSpec(b.environment())
	if err != nil {
		t.Fatal(err)
	}
	c := spec.Containers[0]
	if c.Image != "i:1" || !cmp.Equal(c.Command, []string{"true"}) || len(spec.Volumes)+len(c.VolumeMounts)+len(c.Env) != 0 {
		t.Errorf("got %+v", spec)
	}
	if spec.SecurityContext.RunAsNonRoot == nil || !*spec.SecurityContext.RunAsNonRoot || c.SecurityContext.Capabilities == nil {
		t.Errorf("the security settings are gone: %+v", spec)
	}
}

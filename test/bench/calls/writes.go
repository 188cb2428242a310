package calls

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/test/bench/figures"
)

// writeReport is what the calls of one kind cost the operator in API writes.
type writeReport struct {
	// Source says where the figures are from, Note what else may be in them.
	Source string `json:"source"`
	Note   string `json:"note"`
	// Calls that the figures are of.
	Calls float64 `json:"calls"`
	// PerCall is by verb and resource, or by method where only that is known.
	PerCall *figures.Writes `json:"perCall"`
}

// activity is what the operator's API client says it sent, and how many calls the operator says it ended.
type activity struct {
	writes   figures.Writes
	finished float64
}

func newActivity() *activity { return &activity{writes: figures.Writes{ByName: map[string]float64{}}} }

// addDifference adds what happened between two looks.
func (a *activity) addDifference(before, after *activity) error {
	if after.finished < before.finished {
		return errors.New("count the operator's writes: it was restarted meanwhile")
	}
	a.finished += after.finished - before.finished
	a.writes.Refused += after.writes.Refused - before.writes.Refused
	for method, n := range after.writes.ByName {
		a.writes.ByName[method] += n - before.writes.ByName[method]
	}
	return nil
}

// PUT is not among them: with it the operator renews its lease and keeps NetworkPolicies, and no call causes one.
var writeMethods = []string{"POST", "PATCH", "DELETE"}

// addPage adds what a page of the operator's metrics says.
func (a *activity) addPage(page []byte) error {
	metrics, err := figures.ReadMetrics(bytes.NewReader(page))
	a.finished += figures.Sum(metrics, "toolcall_calls_finished_total")
	for _, m := range metrics {
		switch {
		case m.Name != "rest_client_requests_total" || !slices.Contains(writeMethods, m.Labels["method"]):
		case strings.HasPrefix(m.Labels["code"], "2"):
			a.writes.ByName[m.Labels["method"]] += m.Value
		default:
			a.writes.Refused += m.Value
		}
	}
	return err
}

// observe runs samples of a kind, with all that follows from them: the refill of a pool too. Where there is no audit
// log to count the operator's writes in afterwards, it counts what the operator's metrics say of that time. They are
// divided by the calls that the operator ended, so that calls of others, meanwhile, change the figure little.
func (r *run) observe(ctx context.Context, kind string, measure func() error) error {
	if r.auditLog != "" {
		return measure()
	}
	before, err := r.readActivity(ctx)
	if err != nil {
		return err
	}
	if err := measure(); err != nil {
		return err
	}
	after, err := r.readActivity(ctx)
	if err != nil {
		return err
	}
	if r.activities[kind] == nil {
		r.activities[kind] = newActivity()
	}
	return r.activities[kind].addDifference(before, after)
}

// readActivity sums over the operator's pods, whose metrics it reads through the API server: only the leader works, but
// which one that is may change.
func (r *run) readActivity(ctx context.Context) (*activity, error) {
	pods, err := r.operatorPods(ctx)
	if err != nil {
		return nil, err
	}
	sum := newActivity()
	for _, pod := range pods {
		page, err := r.metricsOf(ctx, pod)
		if err != nil {
			return nil, err
		}
		if err := sum.addPage(page); err != nil {
			return nil, fmt.Errorf("read the metrics of pod %s: %w", pod, err)
		}
	}
	return sum, nil
}

// operatorPods are the names of the operator's pods that run.
func (r *run) operatorPods(ctx context.Context) (names []string, err error) {
	pods, err := r.clients.CoreV1().Pods(r.operatorNS).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=" + r.operatorSA, FieldSelector: "status.phase=Running",
	})
	if err != nil {
		return nil, fmt.Errorf("list the operator's pods: %w", err)
	}
	if len(pods.Items) == 0 {
		return nil, fmt.Errorf("no pod of the operator runs in namespace %s", r.operatorNS)
	}
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	return names, nil
}

// metricsOf is the page of metrics of one of the operator's pods.
func (r *run) metricsOf(ctx context.Context, pod string) ([]byte, error) {
	page, err := r.clients.CoreV1().Pods(r.operatorNS).ProxyGet("http", pod, "8080", "/metrics", nil).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of pod %s: %w", pod, err)
	}
	return page, nil
}

// operatorUser is the name of the operator's account.
func (r *run) operatorUser() string {
	return "system:serviceaccount:" + r.operatorNS + ":" + r.operatorSA
}

// writeReports are the writes for the samples since then, by kind of call. In the API server's audit log they are counted by the
// namespaces of the kinds: exact, whatever else runs on the cluster.
func (r *run) writeReports(since time.Time) (map[string]*writeReport, error) {
	log := figures.AuditLog{File: r.auditLog, User: r.operatorUser(), Since: since}
	var counts map[string]*figures.Writes
	if r.auditLog != "" {
		var err error
		if counts, err = log.Count(); err != nil {
			return nil, err
		}
	}
	reports := map[string]*writeReport{}
	for _, f := range r.fixtures {
		calls := float64(len(totals(r.report.Samples, f.kind)))
		writes, done := counts[f.Namespace], r.activities[f.kind]
		switch {
		case f.environment == nil || calls == 0:
		case writes != nil:
			reports[f.kind] = &writeReport{
				Source: "audit log", Calls: calls, PerCall: writes.PerCall(calls),
				Note: "in the kind's own namespace; access reviews, which store nothing, are not among them",
			}
		case r.auditLog == "" && done != nil && done.finished > 0:
			reports[f.kind] = &writeReport{
				Source: "operator metrics", Calls: done.finished, PerCall: done.writes.PerCall(done.finished),
				Note: "POST includes access reviews; writes for others are in the figures; PUTs (the lease) are not",
			}
		default:
			return nil, fmt.Errorf("count the operator's writes: there are none for %s", titles[f.kind])
		}
	}
	return reports, nil
}

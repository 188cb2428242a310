package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// metricsCounter counts what the operator's API client says it sent, read through the API server from the
// metrics of its pods, around each sample. It is divided by the calls that the operator says it ended, so that calls
// of others, meanwhile, change the figure little.
type metricsCounter struct {
	clients   kubernetes.Interface
	namespace string
	name      string
	before    *clientMetrics
	// sums are by kind of sample.
	sums map[string]*clientMetrics
}

// clientMetrics are totals since the operator's start.
type clientMetrics struct {
	writes   map[string]float64
	refused  float64
	finished float64
}

// PUT is not among them: with it the operator renews its lease and keeps NetworkPolicies, and no call causes one.
var writeMethods = map[string]bool{"POST": true, "PATCH": true, "DELETE": true}

var (
	requestLine  = regexp.MustCompile(`^rest_client_requests_total\{(.*)\} (\S+)$`)
	finishedLine = regexp.MustCompile(`^toolcall_calls_finished_total\{.*\} (\S+)$`)
	labelPair    = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

func (c *metricsCounter) begin(ctx context.Context) (err error) {
	if c.before, err = c.read(ctx); err != nil {
		return fmt.Errorf("count the operator's writes: %w", err)
	}
	return nil
}

func (c *metricsCounter) end(ctx context.Context, kind string) error {
	after, err := c.read(ctx)
	if err != nil {
		return fmt.Errorf("count the operator's writes: %w", err)
	}
	if c.sums[kind] == nil {
		c.sums[kind] = &clientMetrics{writes: map[string]float64{}}
	}
	c.sums[kind].addDifference(c.before, after)
	return nil
}

func (c *metricsCounter) report(_ context.Context, samples []sample) (map[string]*writeReport, error) {
	reports := map[string]*writeReport{}
	for kind := range countCalls(samples) {
		sum := c.sums[kind]
		if sum == nil || sum.finished <= 0 {
			return nil, fmt.Errorf("count the operator's writes: its metrics show no finished call; was it restarted meanwhile?")
		}
		r := &writeReport{
			Source: "operator metrics", Calls: sum.finished, PerCall: map[string]float64{}, Refused: sum.refused,
			Note: "POST includes access reviews; writes for others are in the figures; PUTs (the lease) are not",
		}
		for method, n := range sum.writes {
			r.PerCall[method] = n / sum.finished
		}
		reports[kind] = r
	}
	return reports, nil
}

// addDifference adds what happened between two looks.
func (m *clientMetrics) addDifference(before, after *clientMetrics) {
	m.refused += after.refused - before.refused
	m.finished += after.finished - before.finished
	for method, n := range after.writes {
		if sent := n - before.writes[method]; sent > 0 {
			m.writes[method] += sent
		}
	}
}

// read sums over the operator's pods: only the leader works, but which one that is may change.
func (c *metricsCounter) read(ctx context.Context) (*clientMetrics, error) {
	pods, err := c.clients.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=" + c.name, FieldSelector: "status.phase=Running",
	})
	if err != nil {
		return nil, fmt.Errorf("list the operator's pods: %w", err)
	}
	if len(pods.Items) == 0 {
		return nil, fmt.Errorf("no pod of the operator runs in namespace %s", c.namespace)
	}
	sum := &clientMetrics{writes: map[string]float64{}}
	for _, pod := range pods.Items {
		text, err := c.clients.CoreV1().Pods(c.namespace).ProxyGet("http", pod.Name, "8080", "/metrics", nil).DoRaw(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the metrics of pod %s: %w", pod.Name, err)
		}
		if err := sum.add(text); err != nil {
			return nil, fmt.Errorf("read the metrics of pod %s: %w", pod.Name, err)
		}
	}
	return sum, nil
}

func (m *clientMetrics) add(text []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if err := m.addLine(lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (m *clientMetrics) addLine(line string) error {
	if match := finishedLine.FindStringSubmatch(line); match != nil {
		n, err := strconv.ParseFloat(match[1], 64)
		m.finished += n
		return err
	}
	match := requestLine.FindStringSubmatch(line)
	if match == nil {
		return nil
	}
	labels := map[string]string{}
	for _, pair := range labelPair.FindAllStringSubmatch(match[1], -1) {
		labels[pair[1]] = pair[2]
	}
	n, err := strconv.ParseFloat(match[2], 64)
	switch {
	case !writeMethods[labels["method"]]:
	case strings.HasPrefix(labels["code"], "2"):
		m.writes[labels["method"]] += n
	default:
		m.refused += n
	}
	return err
}

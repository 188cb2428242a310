package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/operator"
	"toolcall.dev/operator/internal/testing/address"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/testing/built"
)

const (
	system   = apiservertest.OperatorNamespace
	patience = 2 * time.Minute
)

// watched is an operator that works against an API server, and a Prometheus that scrapes it.
type watched struct {
	t          *testing.T
	admin      client.Client
	prometheus string
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, is func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = is()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, last)
	}
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	server := apiservertest.New(t, apiservertest.Options{})
	apiservertest.Reads(t, "config")
	for _, args := range []string{
		"apply --server-side -k ../../config/default",
		"delete apiservice v1alpha1.subresources.toolcall.dev", // Nobody answers for it here.
		"wait --for=condition=Established crd --all --timeout=60s",
		"create namespace agents",
	} {
		if said, err := server.Kubectl("", strings.Fields(args)...); err != nil {
			t.Fatalf("kubectl %s: %v: %s", args, err, said)
		}
	}
	w := &watched{t: t, prometheus: address.Free(t), admin: server.Admin(t)}
	w.startPrometheus(w.startOperator(server.AsOperator()))
	return w
}

// startOperator runs the operator in this process, and returns where its metrics are.
func (w *watched) startOperator(conf *rest.Config) string {
	w.t.Helper()
	options := &operator.Options{
		RunnerImage: "example.com/runner:1", RunnerDelivery: operator.DeliverAuto, DispatchAddress: address.Free(w.t),
		IdentityDir: w.t.TempDir(), MetricsAddress: address.Free(w.t), HealthAddress: "0",
		LeaderElect: true, ConcurrentCalls: 16, QPS: 1000, Namespace: system, PodIP: "127.0.0.1",
	}
	must(w.t, options.Validate())
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- operator.Run(ctx, conf, options, logr.Discard()) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Errorf("the operator ended: %v", err)
		}
	})
	return options.MetricsAddress
}

// startPrometheus scrapes as the ServiceMonitor says, with the labels that the Prometheus Operator gives a target.
func (w *watched) startPrometheus(target string) {
	w.t.Helper()
	dir := w.t.TempDir()
	rules := writeYAML(w.t, filepath.Join(dir, "rules.yaml"), shippedRules(w.t))
	file := writeYAML(w.t, filepath.Join(dir, "prometheus.yaml"), map[string]any{
		"global":     map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{rules},
		"scrape_configs": []any{map[string]any{
			"job_name": "toolcall-metrics", "honor_labels": true,
			"static_configs": []any{map[string]any{
				"targets": []string{target}, "labels": map[string]string{"namespace": system, "pod": "toolcall-operator-0", "service": "toolcall-metrics"},
			}},
		}},
	})
	promtool(w.t, "check", "config", file)
	program, err := built.Helper("prometheus")
	must(w.t, err)
	command := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+w.prometheus)
	log, err := os.Create(filepath.Join(dir, "log"))
	must(w.t, err)
	command.Stdout, command.Stderr = log, log
	must(w.t, command.Start())
	w.t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		_ = command.Wait()
		if w.t.Failed() {
			said, _ := os.ReadFile(log.Name())
			w.t.Logf("Prometheus logged\n%s", said)
		}
		_ = log.Close()
	})
}

// ask calls Prometheus's HTTP API, as Grafana does.
func (w *watched) ask(path string, query url.Values, into any) error {
	response, err := http.Get("http://" + w.prometheus + "/api/v1/" + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, response.Status, raw)
	}
	return json.Unmarshal(raw, &struct {
		Data any `json:"data"`
	}{into})
}

// sample is one of a query's results.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  []any             `json:"value"`
}

func (w *watched) query(expr string) ([]sample, error) {
	var data struct {
		Result []sample `json:"result"`
	}
	err := w.ask("query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}

func (w *watched) strings(path string, query url.Values) ([]string, error) {
	var list []string
	err := w.ask(path, query, &list)
	return list, err
}

package otlptest

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolcall.dev/operator/internal/testing/address"
	"toolcall.dev/operator/internal/testing/built"
	"toolcall.dev/operator/internal/testing/full"
)

// passedOn is the configuration of a collector that answers a request when its exporter has been answered.
const passedOn = `yaml:
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {otlphttp: {endpoint: %q, sending_queue: {enabled: false}, retry_on_failure: {enabled: false}}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    traces: {receivers: [otlp], exporters: [otlphttp]}
    metrics: {receivers: [otlp], exporters: [otlphttp]}
    logs: {receivers: [otlp], exporters: [otlphttp]}
`

// Collector is an endpoint to which the OpenTelemetry collector passes on what it takes. Without a full run it is reached directly.
func Collector(t testing.TB) *Endpoint {
	t.Helper()
	e := New(t)
	if !full.Run() {
		return e
	}
	program, err := built.Helper("collector")
	if err != nil {
		t.Fatal(err)
	}
	at := address.Free(t)
	var said strings.Builder
	cmd := exec.Command(program, "--config", fmt.Sprintf(passedOn, at, e.URL))
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the collector: %s", said.String())
		}
	})
	e.URL = "http://" + at
	awaitServing(t, e.URL)
	return e
}

// awaitServing waits until a server answers.
func awaitServing(t testing.TB, url string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		answer, err := http.Get(url)
		if err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

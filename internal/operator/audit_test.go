package operator

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/internal/audit"
	"toolcall.dev/operator/internal/otlp"
	"toolcall.dev/operator/internal/testing/otlptest"
)

// With an endpoint for logs each record is in the file, and at the collector.
func TestAuditRecordsAreExported(t *testing.T) {
	endpoint := otlptest.Collector(t)
	export, err := otlp.New(t.Context(), endpoint.Getenv, otlp.Options{
		Service: "toolcall-operator", Signals: []otlp.Signal{otlp.Logs}, Lost: func(otlp.Signal, int) { t.Error("a record is lost") }, Log: func(error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := &Options{AuditLog: filepath.Join(t.TempDir(), "audit.log"), AuditLogMaxMegabytes: 1, AuditLogMaxFiles: 2}
	a := newAuditLog(o, export.Records("toolcall.audit"), logr.Discard())
	at := time.Unix(100, 0)
	a.add(audit.Record{Schema: audit.Schema, ID: "call/1", Kind: audit.KindCall, Name: "c", Time: metav1.NewMicroTime(at)})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, queue := range a.queues {
		if err := queue.Start(ended); err != nil {
			t.Fatal(err)
		}
	}
	if err := export.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ids, err := a.file.IDs(); err != nil || len(ids) != 1 {
		t.Errorf("the file has %v, %v", ids, err)
	}
	logs := endpoint.Logs()
	if len(logs) != 1 || logs[0].GetEventName() != "toolcall.audit" || logs[0].GetTimeUnixNano() != uint64(at.UnixNano()) {
		t.Fatalf("got %v", logs)
	}
	if body, _ := otlptest.Value(logs[0].GetBody()).(map[string]any); body["id"] != "call/1" || body["schema"] != audit.Schema {
		t.Errorf("got %v", body)
	}
}

// Without the flag there is no log, whatever else is exported.
func TestWithoutTheFlagNothingIsAudited(t *testing.T) {
	if a := newAuditLog(&Options{}, nil, logr.Discard()); a.auditor() != nil || a.record() != nil || a.join(nil) != nil {
		t.Errorf("got %+v", a)
	}
}

package operator

import (
	"context"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	controller "toolcall.dev/operator/controllers/audit"
	"toolcall.dev/operator/internal/audit"
	"toolcall.dev/operator/internal/otlp"
)

const (
	// auditToStdout is the file that stands for the standard output.
	auditToStdout = "-"
	// maxAuditMegabytes and maxAuditFiles bound the audit log, which an operator reads back when it begins to lead.
	maxAuditMegabytes = 4096
	maxAuditFiles     = 100
)

// auditLog is what the operator writes records to; nil for nothing.
type auditLog struct {
	// queues have a sink each.
	queues []*audit.Queue
	// file can be read back; nil where the log is a stream.
	file *audit.File
	log  logr.Logger
}

// newAuditLog also writes to exported, unless it is nil.
func newAuditLog(o *Options, exported *otlp.Records, log logr.Logger) *auditLog {
	a := &auditLog{log: log}
	switch o.AuditLog {
	case "":
		return nil
	case auditToStdout:
		a.queues = []*audit.Queue{audit.NewQueue(&audit.Lines{To: os.Stdout}, log)}
	default:
		a.file = &audit.File{Path: o.AuditLog, MaxBytes: int64(o.AuditLogMaxMegabytes) << 20, MaxFiles: o.AuditLogMaxFiles}
		a.queues = []*audit.Queue{audit.NewQueue(a.file, log)}
	}
	if exported != nil {
		a.queues = append(a.queues, audit.NewQueue(exporter{exported}, log))
	}
	return a
}

// exporter exports records as log records of OpenTelemetry. What a collector doesn't take, the export counts.
type exporter struct{ to *otlp.Records }

func (e exporter) Write(r audit.Record) error {
	if err := e.to.Write(context.Background(), r.Time.Time, r); err != nil {
		return fmt.Errorf("export the record %s: %w", r.ID, err)
	}
	return nil
}

// auditor is what records calls and sessions; nil for nothing.
func (a *auditLog) auditor() *controller.Auditor {
	if a == nil {
		return nil
	}
	auditor := &controller.Auditor{Add: a.add, Log: a.log}
	if a.file != nil {
		auditor.Written = a.file.IDs
	}
	return auditor
}

// record is what records transfers; nil for nothing.
func (a *auditLog) record() func(audit.Record) {
	if a == nil {
		return nil
	}
	return a.add
}

func (a *auditLog) add(r audit.Record) {
	for _, queue := range a.queues {
		queue.Add(r)
	}
}

// join has the leader write what is added.
func (a *auditLog) join(mgr manager.Manager) error {
	if a == nil {
		return nil
	}
	for _, queue := range a.queues {
		if err := mgr.Add(queue); err != nil {
			return fmt.Errorf("add what writes the audit log: %w", err)
		}
	}
	return nil
}

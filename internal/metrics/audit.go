package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	auditWritten = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "toolcall_audit_records_written_total",
		Help: "Records of ended calls and sessions and of transfers that were written to the audit log.",
	})
	auditLost = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "toolcall_audit_records_lost_total",
		Help: "Records that are missing in the audit log, because it couldn't be written to for longer than records could wait.",
	})
)

func init() { crmetrics.Registry.MustRegister(auditWritten, auditLost) }

// CountAuditRecordWritten counts a record that is in the audit log.
func CountAuditRecordWritten() { auditWritten.Inc() }

// CountAuditRecordLost counts a record that the audit log will not have.
func CountAuditRecordLost() { auditLost.Inc() }

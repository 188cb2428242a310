package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

var auditLost = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "toolcall_audit_records_lost_total",
	Help: "Records that are missing in the audit log, because it couldn't be written to for longer than records could wait.",
})

func init() { crmetrics.Registry.MustRegister(auditLost) }

// CountAuditRecordLost counts a record that the audit log will not have.
func CountAuditRecordLost() { auditLost.Inc() }

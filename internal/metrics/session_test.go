package metrics

import (
	"testing"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestSessionsAreCountedByTheirEndAndTheirPath(t *testing.T) {
	ended, ready := values(t, "toolcall_sessions_ended_total"), values(t, "toolcall_session_ready_seconds")
	CountSessionEnded("n", &v1alpha1.ToolSessionStatus{Reason: v1alpha1.ReasonIdleTimeout})
	CountSessionReady("n", &v1alpha1.ToolSessionStatus{Timings: &v1alpha1.SessionTimingsStatus{ReadyMilliseconds: ptr.To[int64](12), Path: v1alpha1.PathWarm}})
	CountSessionReady("n", &v1alpha1.ToolSessionStatus{})
	if after := values(t, "toolcall_sessions_ended_total"); after[other+",reason=IdleTimeout"]-ended[other+",reason=IdleTimeout"] != 1 {
		t.Errorf("ended: %v", after)
	}
	if after := values(t, "toolcall_session_ready_seconds"); after[other+",path=Warm"]-ready[other+",path=Warm"] != 1 || after[other+",path="] != 0 {
		t.Errorf("ready: %v", after)
	}
}

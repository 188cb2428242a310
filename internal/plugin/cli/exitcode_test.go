package cli

import (
	"testing"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	failed := func(reason string, code *int32, signal string) v1alpha1.ToolCallStatus {
		return v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: reason, ExitCode: code, Signal: signal}
	}
	var none *int32
	cases := map[string]struct {
		status v1alpha1.ToolCallStatus
		want   int
	}{
		"success":                    {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseSucceeded, ExitCode: ptr.To(int32(0))}, 0},
		"its own code":               {failed(v1alpha1.ReasonNonZeroExit, ptr.To(int32(7)), ""), 7},
		"the highest code":           {failed(v1alpha1.ReasonNonZeroExit, ptr.To(int32(255)), ""), 255},
		"a code that can't be one":   {failed(v1alpha1.ReasonNonZeroExit, ptr.To(int32(256)), ""), 125},
		"a failure with code 0":      {failed(v1alpha1.ReasonPodLost, ptr.To(int32(0)), ""), 125},
		"a denial":                   {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: v1alpha1.ReasonBinaryNotAllowed}, 126},
		"a cancellation":             {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseCancelled, ExitCode: none, Signal: "SIGTERM"}, 130},
		"the time limit":             {failed(v1alpha1.ReasonTimedOut, none, "SIGTERM"), 124},
		"a signal":                   {failed(v1alpha1.ReasonSignaled, none, "SIGSEGV"), 139},
		"SIGKILL":                    {failed(v1alpha1.ReasonSignaled, none, "SIGKILL"), 137},
		"a signal that nobody knows": {failed(v1alpha1.ReasonSignaled, none, "SIGRT7"), 128},
		"out of memory":              {failed(v1alpha1.ReasonOOMKilled, none, ""), 137},
		"no such program":            {failed(v1alpha1.ReasonCommandNotFound, nil, ""), 127},
		"no such environment":        {failed(v1alpha1.ReasonEnvironmentNotFound, nil, ""), 125},
		"a lost pod":                 {failed(v1alpha1.ReasonPodLost, nil, ""), 125},
	}
	for name, c := range cases {
		if got := ExitCode(&v1alpha1.ToolCall{Status: c.status}); got != c.want {
			t.Errorf("%s: %d, not %d", name, got, c.want)
		}
	}
}

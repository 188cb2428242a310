package toolcall

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// What a call does can't fill the log: each record is bounded, and so are the records of a namespace.
func TestRecordsOfProgramsAreBounded(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var log bytes.Buffer
	ctx := ctrl.LoggerInto(t.Context(), zap.New(zap.WriteTo(&log)))
	for i := range 2 * rateBurst {
		o := observed(bound)
		o.call.Name = fmt.Sprint("call-", i)
		o.result = outcome(func(o *result.Outcome) {
			for range result.MaxPrograms {
				// A control character of two bytes, which the log shows in seven.
				o.Refused = append(o.Refused, result.Program{Path: strings.Repeat("\u009b", result.MaxProgramPath/2), Count: math.MaxInt64, Rule: result.RuleInterpreter})
			}
			o.Executed, o.MoreExecuted, o.MoreRefused = o.Refused, math.MaxInt64, math.MaxInt64
		})
		after := o.call.DeepCopy()
		after.Status = *o.withResult(o.result, 0)
		if s := after.Status; s.OmittedRefused != math.MaxInt64 || s.OmittedExecuted != math.MaxInt64 {
			t.Fatalf("the status counts %d and %d more", s.OmittedRefused, s.OmittedExecuted)
		}
		c.announce(ctx, o, after)
	}
	lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
	if len(lines) != rateBurst {
		t.Errorf("%d records were written", len(lines))
	}
	if size := len(lines[0]); size < 64<<10 || size > 96<<10 {
		t.Errorf("the largest record takes %d bytes", size)
	}
}

func TestACallSaysWhatItStartedAs(t *testing.T) {
	t.Parallel()
	o := observed(bound)
	o.decision.RuntimeClass = "gvisor"
	reported := outcome(func(o *result.Outcome) {
		o.Isolation = &result.Isolation{
			Self: &rules.Self{User: 1000, Seccomp: rules.SeccompFilter, UserNamespace: new(false)}, Network: result.NetworkNone,
		}
	})
	if err := reported.Validate(); err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.Isolation{
		User: new(int64(1000)), Seccomp: v1alpha1.SeccompFilter, UserNamespace: new(false), RuntimeClass: "gvisor", Network: v1alpha1.HeldNetworkNone,
	}
	s := o.withResult(reported, 0)
	if diff := cmp.Diff(want, s.Isolation); diff != "" {
		t.Error(diff)
	}
	if raw, err := json.Marshal(s.Isolation); err != nil || len(raw) > 128 {
		t.Errorf("each call takes %d bytes more: %s", len(raw), raw)
	}
	// Nobody knows what the pod was made from, or an older runner says nothing of itself.
	o.decision = nil
	reported.Outcome.Isolation.Self = nil
	if i := o.withResult(reported, 0).Isolation; i.User != nil || i.Seccomp != "" || i.UserNamespace != nil || i.RuntimeClass != "" {
		t.Errorf("got %+v", i)
	}
}

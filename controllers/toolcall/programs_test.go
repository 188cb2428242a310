package toolcall

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"toolcall.dev/operator/internal/result"
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

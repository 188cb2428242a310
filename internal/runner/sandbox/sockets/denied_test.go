package sockets

import (
	"strings"
	"testing"

	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/result"
)

func TestDenialsAreBounded(t *testing.T) {
	var d denials
	for i := range uint16(2 * result.MaxDenials) {
		d.add(i, network.TCP, network.Verdict{Host: strings.Repeat("a", 1+int(i)), Rule: "no"})
		d.add(0, network.UDP, network.Verdict{Host: "::1", Rule: "no"})
	}
	o := result.Outcome{Reason: result.CommandNotFound}
	d.report(&o)
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	if len(o.Denied) != result.MaxDenials || o.MoreDenied != result.MaxDenials+1 {
		t.Errorf("%d are listed, %d more counted", len(o.Denied), o.MoreDenied)
	}
	if message := d.message(); !strings.Contains(message, "At least 19 other addresses") {
		t.Errorf("the message is %q", message)
	}
}

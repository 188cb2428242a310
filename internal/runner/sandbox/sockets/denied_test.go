package sockets

import (
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/result"
)

func TestDenialsAreBounded(t *testing.T) {
	var d denials
	for i := range uint16(2 * result.MaxDenials) {
		d.add(netip.AddrPortFrom(netip.IPv6Loopback(), i), network.TCP, network.Verdict{Host: strings.Repeat("é", 10*int(i)), Rule: strings.Repeat("\xff", 5000)})
		d.add(netip.AddrPortFrom(netip.IPv6Loopback(), 0), network.UDP, network.Verdict{})
	}
	o := result.Outcome{Reason: result.CommandNotFound}
	d.report(&o)
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	if len(o.Denied) != result.MaxDenials || o.MoreDenied != result.MaxDenials {
		t.Errorf("%d are listed, %d more counted", len(o.Denied), o.MoreDenied)
	}
	if message := d.message(); len(message) > 2*result.MaxMessage || !utf8.ValidString(message) || !strings.Contains(message, "At least 19 other addresses") {
		t.Errorf("the message is %q", message)
	}
}

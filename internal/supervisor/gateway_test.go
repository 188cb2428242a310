package supervisor

import (
	"net/netip"
	"strings"
	"testing"
)

func TestGatewaysAreReadFromTheTablesOfRoutes(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"eth0\t00000000\t0100F40A\t0003\t0\t0\t0\t00000000\t0\t0\t0": "10.244.0.1", // written on a little-endian machine
		"eth0\t0000F40A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0": "0.0.0.0",
		"Iface\tDestination\tGateway \tFlags":                        "", "": "", "eth0 0": "",
		strings.Repeat("0", 32) + " 00 " + strings.Repeat("0", 32) + " 00 20010db8000000000000000000000001 00000400 0 0 3 eth0": "2001:db8::1",
		strings.Repeat("0", 32) + " 00 " + strings.Repeat("0", 32) + " 00 2001 00000400 0 0 3 eth0":                             "",
	} {
		fields := strings.Fields(line)
		next := nextHop4
		if len(fields) > 4 && len(fields[0]) == 32 {
			next = nextHop6
		}
		got, is := next(fields)
		if wanted, err := netip.ParseAddr(want); is != (err == nil) || is && got != wanted {
			t.Errorf("%q: %s, %t", line, got, is)
		}
	}
}

package sockets

import (
	"encoding/hex"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWhatAnAddressIs(t *testing.T) {
	for name, c := range map[string]struct {
		raw   string
		to    string
		errno unix.Errno
	}{
		"IPv4":                        {"0200 0050 0a000001 0000000000000000", "10.0.0.1:80", 0},
		"IPv4 and more":               {"0200 0050 0a000001 0000000000000000 ffff", "10.0.0.1:80", 0},
		"IPv4 that is cut":            {"0200 0050 0a000001 00000000000000", "", unix.EINVAL},
		"IPv6":                        {"0a00 01bb 00000000 20010db8000000000000000000000001 00000000", "[2001:db8::1]:443", 0},
		"IPv6 without a scope":        {"0a00 01bb 00000000 20010db8000000000000000000000001", "[2001:db8::1]:443", 0},
		"IPv6 with a scope":           {"0a00 01bb 00000000 fe800000000000000000000000000001 02000000", "[fe80::1]:443", 0},
		"IPv6 that is cut":            {"0a00 01bb 00000000 20010db80000000000000000000000", "", unix.EINVAL},
		"mapped":                      {"0a00 01bb 00000000 00000000000000000000ffffa9fea9fe 00000000", "169.254.169.254:443", 0},
		"unspecified IPv4":            {"0200 0050 00000000 0000000000000000", "127.0.0.1:80", 0},
		"unspecified IPv6":            {"0a00 0050 00000000 00000000000000000000000000000000 00000000", "[::1]:80", 0},
		"mapped unspecified":          {"0a00 0050 00000000 00000000000000000000ffff00000000 00000000", "127.0.0.1:80", 0},
		"compatible isn't mapped":     {"0a00 0050 00000000 0000000000000000000000000a000001 00000000", "[::10.0.0.1]:80", 0},
		"nothing":                     {"", "", unix.EINVAL},
		"half a family":               {"02", "", unix.EINVAL},
		"another family":              {"0100 2f78", "", unix.EAFNOSUPPORT},
		"a family that looks like it": {"0201 0050 0a000001 0000000000000000", "", unix.EAFNOSUPPORT},
	} {
		raw := unhex(t, c.raw)
		a, errno := parseAddress(raw)
		if errno != c.errno || errno == 0 && a.to != netip.MustParseAddrPort(c.to) {
			t.Errorf("%s: got %v and %v", name, a.to, errno)
		}
	}
	if a, errno := parseAddress([]byte{0, 0}); errno != 0 || a.family != unix.AF_UNSPEC {
		t.Errorf("disconnecting: %+v, %v", a, errno)
	}
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	var digits []byte
	for _, c := range []byte(text) {
		if c != ' ' {
			digits = append(digits, c)
		}
	}
	if len(digits)%2 != 0 {
		digits = digits[:len(digits)-1]
	}
	raw, err := hex.DecodeString(string(digits))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestARedirectedAddressIsOfItsSocketsFamily(t *testing.T) {
	v4, v6 := netip.MustParseAddrPort("127.0.0.1:5353"), netip.MustParseAddrPort("[2001:db8::53]:5353")
	for name, c := range map[string]struct {
		raw   string
		to    netip.AddrPort
		want  string
		errno unix.Errno
	}{
		"IPv4":             {"0200 0035 0a000001 0000000000000000", v4, "020014e97f0000010000000000000000", 0},
		"IPv4 from mapped": {"0200 0035 0a000001 0000000000000000", netip.MustParseAddrPort("[::ffff:127.0.0.1]:5353"), "020014e97f0000010000000000000000", 0},
		"IPv6 from IPv4":   {"0200 0035 0a000001 0000000000000000", v6, "", unix.EAFNOSUPPORT},
		"mapped":           {"0a00 0035 00000000 fe800000000000000000000000000001 07000000", v4, "0a0014e90000000000000000000000000000ffff7f00000100000000", 0},
		"IPv6":             {"0a00 0035 00000000 fe800000000000000000000000000001 07000000", v6, "0a0014e90000000020010db800000000000000000000005300000000", 0},
	} {
		a, errno := parseAddress(unhex(t, c.raw))
		if errno != 0 {
			t.Fatal(errno)
		}
		if errno = a.redirect(c.to); errno != c.errno || errno == 0 && (hex.EncodeToString(a.raw) != c.want || a.to.Port() != 5353) {
			t.Errorf("%s: %x, %v, %v", name, a.raw, a.to, errno)
		}
	}
}

// What is decided about is what the kernel gets.
func FuzzAddress(f *testing.F) {
	f.Add([]byte{2, 0, 0, 80, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add(append([]byte{10, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, errno := parseAddress(raw)
		if errno != 0 || a.family == unix.AF_UNSPEC {
			return
		}
		if a.to.Addr().Is4In6() || a.to.Addr().Zone() != "" || a.to.Addr().IsUnspecified() {
			t.Errorf("%x: %v", raw, a.to)
		}
		again, errno := parseAddress(a.raw)
		if errno != 0 || again.to != a.to {
			t.Errorf("%x: the kernel gets %v, %v", raw, again.to, errno)
		}
	})
}

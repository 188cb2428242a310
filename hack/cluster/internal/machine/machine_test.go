package machine

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, t := range texts {
		all = append(all, netip.MustParsePrefix(t))
	}
	return all
}

func TestChooseSubnet(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		used    []netip.Prefix
		want    string
		wantErr string
	}{
		"the first candidate when nothing is in use":        {want: "10.213.0.0/30"},
		"the next one when an address lies in the first":    {used: prefixes("10.213.0.1/32"), want: "10.213.1.0/30"},
		"another range when all of ten is routed elsewhere": {used: prefixes("10.0.0.0/8"), want: "172.29.0.0/30"},
		"outside the networks that the node uses itself":    {used: prefixes("10.192.0.0/10", "172.16.0.0/12"), want: "192.168.0.0/30"},
		"an error when nothing is free":                     {used: prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"), wantErr: "no private network is free"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ChooseSubnet(c.used)
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Fatalf("got %v, %v; want an error with %q", got, err, c.wantErr)
				}
				return
			}
			if err != nil || got.String() != c.want {
				t.Fatalf("got %v, %v; want %s", got, err, c.want)
			}
		})
	}
}

func TestParseRoutesLeavesDefaultRoutesOut(t *testing.T) {
	t.Parallel()
	const table = `default via 192.0.2.1 dev eth0
192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.2
198.51.100.7 dev tun0 scope link
unreachable 203.0.113.0/24 metric 1024
`
	if got, want := parseRoutes(table), prefixes("192.0.2.0/24", "198.51.100.7/32", "203.0.113.0/24"); !slices.Equal(got, want) {
		t.Fatalf("got %v; want %v", got, want)
	}
}

func TestParseCgroupMounts(t *testing.T) {
	t.Parallel()
	const mountinfo = `30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
33 24 0:29 / /elsewhere rw - cgroup2 cgroup2 rw
`
	want := []CgroupMount{
		{Path: "/sys/fs/cgroup/cpu,cpuacct", Controllers: []string{"rw", "cpu", "cpuacct"}},
		{Path: "/sys/fs/cgroup/unified", V2: true},
	}
	if got := parseCgroupMounts(mountinfo); !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestParseCapabilities(t *testing.T) {
	t.Parallel()
	got, err := parseCapabilities("Name:\tx\nCapEff:\t000001fffeffffff\nCapBnd:\t0\n")
	if err != nil || got != 0x1fffeffffff {
		t.Fatalf("got %x, %v", got, err)
	}
	if _, err := parseCapabilities("Name:\tx\n"); err == nil {
		t.Fatal("a status without capabilities was accepted")
	}
}

package filter

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheFilterOfAHeldNetwork(t *testing.T) {
	const notified = unix.SECCOMP_RET_USER_NOTIF
	const allowed = unix.SECCOMP_RET_ALLOW
	flags := uint32(unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC)
	for name, c := range map[string]struct {
		number uint32
		args   []uint32
		want   uint32
	}{
		"TCP":                         {unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM, 0}, notified},
		"TCP by name, with flags":     {unix.SYS_SOCKET, []uint32{unix.AF_INET6, unix.SOCK_STREAM | flags, unix.IPPROTO_TCP}, notified},
		"UDP":                         {unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_DGRAM, 0}, notified},
		"UDP by name, with flags":     {unix.SYS_SOCKET, []uint32{unix.AF_INET6, unix.SOCK_DGRAM | flags, unix.IPPROTO_UDP}, notified},
		"MPTCP":                       {unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, refused(unix.EPROTONOSUPPORT)},
		"SMC":                         {unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SMC}, refused(unix.EPROTONOSUPPORT)},
		"SCTP":                        {unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, refused(unix.EPROTONOSUPPORT)},
		"SCTP's packets":              {unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP}, refused(unix.EPERM)},
		"ping":                        {unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, refused(unix.EACCES)},
		"UDP-Lite":                    {unix.SYS_SOCKET, []uint32{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE}, refused(unix.EACCES)},
		"raw":                         {unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_RAW, 0}, refused(unix.EPERM)},
		"another type":                {unix.SYS_SOCKET, []uint32{unix.AF_INET, 0xf, 0}, refused(unix.EPERM)},
		"Unix":                        {unix.SYS_SOCKET, []uint32{unix.AF_UNIX, unix.SOCK_DGRAM, 0}, allowed},
		"routes":                      {unix.SYS_SOCKET, []uint32{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, allowed},
		"another netlink":             {unix.SYS_SOCKET, []uint32{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_INET_DIAG}, refused(unix.EPROTONOSUPPORT)},
		"packets":                     {unix.SYS_SOCKET, []uint32{unix.AF_PACKET, unix.SOCK_RAW, 0}, refused(unix.EAFNOSUPPORT)},
		"no family":                   {unix.SYS_SOCKET, []uint32{0, unix.SOCK_STREAM, 0}, refused(unix.EAFNOSUPPORT)},
		"a negative family":           {unix.SYS_SOCKET, []uint32{0xffffffff, unix.SOCK_STREAM, 0}, refused(unix.EAFNOSUPPORT)},
		"a Unix pair":                 {unix.SYS_SOCKETPAIR, []uint32{unix.AF_UNIX}, allowed},
		"another pair":                {unix.SYS_SOCKETPAIR, []uint32{unix.AF_INET}, refused(unix.EOPNOTSUPP)},
		"connect":                     {unix.SYS_CONNECT, nil, notified},
		"bind":                        {unix.SYS_BIND, nil, notified},
		"listen":                      {unix.SYS_LISTEN, nil, notified},
		"sending":                     {unix.SYS_SENDTO, []uint32{3, 1, 1, unix.MSG_NOSIGNAL, 0}, allowed},
		"sending to an address":       {unix.SYS_SENDTO, []uint32{3, 1, 1, 0, 8}, notified},
		"fast open":                   {unix.SYS_SENDTO, []uint32{3, 1, 1, unix.MSG_FASTOPEN | unix.MSG_NOSIGNAL, 8}, refused(unix.EOPNOTSUPP)},
		"fast open without address":   {unix.SYS_SENDTO, []uint32{3, 1, 1, unix.MSG_FASTOPEN, 0}, refused(unix.EOPNOTSUPP)},
		"a message":                   {unix.SYS_SENDMSG, []uint32{3, 8, unix.MSG_MORE}, allowed},
		"fast open by a message":      {unix.SYS_SENDMSG, []uint32{3, 8, unix.MSG_FASTOPEN}, refused(unix.EOPNOTSUPP)},
		"messages":                    {unix.SYS_SENDMMSG, []uint32{3, 8, 2, 0}, allowed},
		"fast open by messages":       {unix.SYS_SENDMMSG, []uint32{3, 8, 2, unix.MSG_FASTOPEN}, refused(unix.EOPNOTSUPP)},
		"an option":                   {unix.SYS_SETSOCKOPT, []uint32{3, unix.SOL_SOCKET, unix.SO_KEEPALIVE}, allowed},
		"IP options":                  {unix.SYS_SETSOCKOPT, []uint32{3, unix.IPPROTO_IP, unix.IP_OPTIONS}, refused(unix.EPERM)},
		"an option of IP":             {unix.SYS_SETSOCKOPT, []uint32{3, unix.IPPROTO_IP, unix.IP_TOS}, allowed},
		"a routing header":            {unix.SYS_SETSOCKOPT, []uint32{3, unix.IPPROTO_IPV6, unix.IPV6_RTHDR}, refused(unix.EPERM)},
		"old options of IPv6":         {unix.SYS_SETSOCKOPT, []uint32{3, unix.IPPROTO_IPV6, unix.IPV6_2292PKTOPTIONS}, refused(unix.EPERM)},
		"IPv6 only":                   {unix.SYS_SETSOCKOPT, []uint32{3, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY}, allowed},
		"another layer":               {unix.SYS_SETSOCKOPT, []uint32{3, unix.IPPROTO_TCP, unix.TCP_ULP}, refused(unix.ENOENT)},
		"no delay":                    {unix.SYS_SETSOCKOPT, []uint32{3, unix.IPPROTO_TCP, unix.TCP_NODELAY}, allowed},
		"a group":                     {unix.SYS_SETSOCKOPT, []uint32{3, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP}, refused(unix.EPERM)},
		"a group of IPv6":             {unix.SYS_SETSOCKOPT, []uint32{3, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP}, refused(unix.EPERM)},
		"the number of another level": {unix.SYS_SETSOCKOPT, []uint32{3, unix.SOL_SOCKET, unix.IP_OPTIONS}, allowed},
		"a flow label":                {unix.SYS_SETSOCKOPT, []uint32{3, unix.IPPROTO_IPV6, flowLabels}, refused(unix.EPERM)},
		"a key":                       {unix.SYS_REQUEST_KEY, nil, refused(unix.EPERM)},
		"pages of one's own":          {unix.SYS_USERFAULTFD, nil, refused(unix.ENOSYS)},
		"becoming undumpable":         {unix.SYS_PRCTL, []uint32{unix.PR_SET_DUMPABLE}, refused(0)},
		"execve":                      {unix.SYS_EXECVE, nil, allowed},
		"tracing":                     {unix.SYS_PTRACE, nil, allowed},
		"io_uring":                    {unix.SYS_IO_URING_SETUP, nil, refused(unix.ENOSYS)},
		"x32":                         {unix.SYS_SOCKET | foreignBit, []uint32{unix.AF_INET, unix.SOCK_STREAM}, refused(unix.ENOSYS)},
		"another call":                {unix.SYS_GETPID, nil, allowed},
	} {
		for _, arch := range []uint32{unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_AARCH64} {
			if got := evaluate(t, program(arch, Network), arch, c.number, c.args...); got != c.want {
				t.Errorf("%s on %x: got %x, want %x", name, arch, got, c.want)
			}
			both := evaluate(t, program(arch, Network|Programs), arch, c.number, c.args...)
			if both != c.want && name != "execve" && name != "tracing" {
				t.Errorf("%s on %x with programs: got %x, want %x", name, arch, both, c.want)
			}
			none := evaluate(t, program(arch, Network|DenyNetwork), arch, c.number, c.args...)
			if c.number == unix.SYS_SOCKET && c.want == notified && none != refused(unix.EACCES) {
				t.Errorf("%s on %x without a network: got %x", name, arch, none)
			}
		}
	}
}

// The upper half of an address counts too.
func TestAnAddressAbove4GiBIsOne(t *testing.T) {
	f := program(unix.AUDIT_ARCH_X86_64, Network)
	data := []uint32{3, 1, 1, 0, 0}
	if got := evaluate(t, f, unix.AUDIT_ARCH_X86_64, unix.SYS_SENDTO, data...); got != unix.SECCOMP_RET_ALLOW {
		t.Fatalf("got %x", got)
	}
	i := 0
	for ; f[i] != load(offArg4High); i++ { // the test fails with a panic if it isn't looked at
	}
	f[i] = load(offNumber) // not 0
	if got := evaluate(t, f, unix.AUDIT_ARCH_X86_64, unix.SYS_SENDTO, data...); got != unix.SECCOMP_RET_USER_NOTIF {
		t.Errorf("got %x", got)
	}
}

func TestOpenedUDPMayJoinGroups(t *testing.T) {
	f := program(unix.AUDIT_ARCH_X86_64, Network|UDP)
	for level, option := range map[uint32]uint32{unix.IPPROTO_IP: unix.IP_ADD_MEMBERSHIP, unix.IPPROTO_IPV6: unix.IPV6_JOIN_GROUP} {
		if got := evaluate(t, f, unix.AUDIT_ARCH_X86_64, unix.SYS_SETSOCKOPT, 3, level, option); got != unix.SECCOMP_RET_ALLOW {
			t.Errorf("got %x", got)
		}
	}
}

package filter

import (
	"testing"

	"golang.org/x/sys/unix"
)

// calls are what a filter is asked about, and what it answers.
type calls map[string]asked

type asked struct {
	number uint32
	args   [3]uint32
	want   uint32
}

func (c calls) check(t *testing.T, o Options) {
	t.Helper()
	for _, arch := range []uint32{unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_AARCH64} {
		for name, call := range c {
			if got := evaluate(t, program(arch, o), arch, call.number, call.args[:]...); got != call.want {
				t.Errorf("%s on %x with %b: got %x, want %x", name, arch, o, got, call.want)
			}
		}
		if got := evaluate(t, program(arch, o), unix.AUDIT_ARCH_I386, unix.SYS_GETPID); got != refused(unix.ENOSYS) {
			t.Errorf("another machine on %x with %b: got %x", arch, o, got)
		}
	}
}

// always holds whatever the filter is for.
var always = calls{
	"another call":            {unix.SYS_GETPID, [3]uint32{2}, unix.SECCOMP_RET_ALLOW},
	"io_uring":                {unix.SYS_IO_URING_SETUP, [3]uint32{1}, refused(unix.ENOSYS)},
	"an entered ring":         {unix.SYS_IO_URING_ENTER, [3]uint32{1}, refused(unix.ENOSYS)},
	"x32":                     {unix.SYS_GETPID | foreignBit, [3]uint32{1}, refused(unix.ENOSYS)},
	"a negative number":       {0xffffffff, [3]uint32{1}, refused(unix.ENOSYS)},
	"one's own limits":        {unix.SYS_PRLIMIT64, [3]uint32{0, 7, 1}, unix.SECCOMP_RET_ALLOW},
	"another's limits":        {unix.SYS_PRLIMIT64, [3]uint32{1, 7, 1}, refused(unix.EPERM)},
	"to read them":            {unix.SYS_PRLIMIT64, [3]uint32{1, 7, 0}, unix.SECCOMP_RET_ALLOW},
	"one's own priority":      {unix.SYS_SETPRIORITY, [3]uint32{0, 0, 5}, unix.SECCOMP_RET_ALLOW},
	"another's priority":      {unix.SYS_SETPRIORITY, [3]uint32{0, 1, 5}, refused(unix.EPERM)},
	"one's own scheduling":    {unix.SYS_SCHED_SETSCHEDULER, [3]uint32{0}, unix.SECCOMP_RET_ALLOW},
	"another's scheduling":    {unix.SYS_SCHED_SETSCHEDULER, [3]uint32{1}, refused(unix.EPERM)},
	"another's attributes":    {unix.SYS_SCHED_SETATTR, [3]uint32{1}, refused(unix.EPERM)},
	"another's parameters":    {unix.SYS_SCHED_SETPARAM, [3]uint32{1}, refused(unix.EPERM)},
	"another's processors":    {unix.SYS_SCHED_SETAFFINITY, [3]uint32{1}, unix.SECCOMP_RET_ALLOW},
	"one's own disk priority": {unix.SYS_IOPRIO_SET, [3]uint32{1, 0}, unix.SECCOMP_RET_ALLOW},
	"another's disk priority": {unix.SYS_IOPRIO_SET, [3]uint32{1, 1}, refused(unix.EPERM)},
	"the user's":              {unix.SYS_IOPRIO_SET, [3]uint32{ioprioWhoUser, 0}, refused(unix.EPERM)},
	"the user's priority":     {unix.SYS_SETPRIORITY, [3]uint32{unix.PRIO_USER, 0, 5}, refused(unix.EPERM)},
	"a Unix socket":           {unix.SYS_SOCKET, [3]uint32{unix.AF_UNIX}, unix.SECCOMP_RET_ALLOW},
	"a Unix pair":             {unix.SYS_SOCKETPAIR, [3]uint32{unix.AF_UNIX}, unix.SECCOMP_RET_ALLOW},
}

var (
	offline = calls{
		"an IP socket": {unix.SYS_SOCKET, [3]uint32{unix.AF_INET}, refused(unix.EACCES)},
		"an IP pair":   {unix.SYS_SOCKETPAIR, [3]uint32{unix.AF_INET}, refused(unix.EACCES)},
		"netlink":      {unix.SYS_SOCKET, [3]uint32{unix.AF_NETLINK}, refused(unix.EACCES)},
		"family 0":     {unix.SYS_SOCKET, [3]uint32{0}, refused(unix.EACCES)},
		"a key":        {unix.SYS_REQUEST_KEY, [3]uint32{}, refused(unix.EPERM)},
		"a new key":    {unix.SYS_ADD_KEY, [3]uint32{}, refused(unix.EPERM)},
		"keys":         {unix.SYS_KEYCTL, [3]uint32{}, refused(unix.EPERM)},
	}
	online = calls{"an IP socket": {unix.SYS_SOCKET, [3]uint32{unix.AF_INET}, unix.SECCOMP_RET_ALLOW}}
	gated  = calls{
		"execve":                   {unix.SYS_EXECVE, [3]uint32{}, unix.SECCOMP_RET_USER_NOTIF},
		"execveat":                 {unix.SYS_EXECVEAT, [3]uint32{}, unix.SECCOMP_RET_USER_NOTIF},
		"tracing":                  {unix.SYS_PTRACE, [3]uint32{}, refused(unix.EPERM)},
		"reading memory":           {unix.SYS_PROCESS_VM_READV, [3]uint32{}, refused(unix.EPERM)},
		"writing memory":           {unix.SYS_PROCESS_VM_WRITEV, [3]uint32{}, refused(unix.EPERM)},
		"another root":             {unix.SYS_CHROOT, [3]uint32{}, refused(unix.EPERM)},
		"a mount":                  {unix.SYS_MOUNT, [3]uint32{}, refused(unix.EPERM)},
		"a user namespace":         {unix.SYS_UNSHARE, [3]uint32{unix.CLONE_NEWUSER | unix.CLONE_NEWNS}, refused(unix.EPERM)},
		"a child that is traced":   {unix.SYS_CLONE, [3]uint32{unix.CLONE_PTRACE}, refused(unix.EPERM)},
		"a child of the parent":    {unix.SYS_CLONE, [3]uint32{unix.CLONE_PARENT}, refused(unix.EPERM)},
		"a child in one":           {unix.SYS_CLONE, [3]uint32{unix.CLONE_NEWUSER}, refused(unix.EPERM)},
		"a child":                  {unix.SYS_CLONE, [3]uint32{unix.CLONE_VM | unix.CLONE_VFORK}, unix.SECCOMP_RET_ALLOW},
		"flags that can't be seen": {unix.SYS_CLONE3, [3]uint32{}, refused(unix.ENOSYS)},
		"pages of one's own":       {unix.SYS_USERFAULTFD, [3]uint32{}, refused(unix.ENOSYS)},
		"becoming undumpable":      {unix.SYS_PRCTL, [3]uint32{unix.PR_SET_DUMPABLE}, refused(0)},
		"another prctl":            {unix.SYS_PRCTL, [3]uint32{unix.PR_SET_NAME}, unix.SECCOMP_RET_ALLOW},
		"a listener":               {unix.SYS_SECCOMP, [3]uint32{1, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER}, refused(unix.EBUSY)},
		"a filter":                 {unix.SYS_SECCOMP, [3]uint32{1, 0}, unix.SECCOMP_RET_ALLOW},
		"a file in memory":         {unix.SYS_MEMFD_CREATE, [3]uint32{0, unix.MFD_CLOEXEC}, unix.SECCOMP_RET_USER_NOTIF},
		"a program in memory":      {unix.SYS_MEMFD_CREATE, [3]uint32{0, unix.MFD_EXEC}, refused(unix.EACCES)},
		"certainly no program":     {unix.SYS_MEMFD_CREATE, [3]uint32{0, unix.MFD_NOEXEC_SEAL}, unix.SECCOMP_RET_ALLOW},
		"both at once":             {unix.SYS_MEMFD_CREATE, [3]uint32{0, unix.MFD_NOEXEC_SEAL | unix.MFD_EXEC}, refused(unix.EACCES)},
	}
	// traced is what a trace alone needs.
	traced = calls{
		"execve":             {unix.SYS_EXECVE, [3]uint32{}, unix.SECCOMP_RET_ALLOW},
		"execveat":           {unix.SYS_EXECVEAT, [3]uint32{}, unix.SECCOMP_RET_ALLOW},
		"tracing":            {unix.SYS_PTRACE, [3]uint32{}, refused(unix.EPERM)},
		"an untraced child":  {unix.SYS_CLONE, [3]uint32{unix.CLONE_UNTRACED}, refused(unix.EPERM)},
		"an untraced thread": {unix.SYS_CLONE, [3]uint32{unix.CLONE_UNTRACED | unix.CLONE_THREAD | unix.CLONE_VM}, refused(unix.EPERM)},
		"a child":            {unix.SYS_CLONE, [3]uint32{unix.CLONE_VM | unix.CLONE_VFORK}, unix.SECCOMP_RET_ALLOW},
		"hidden flags":       {unix.SYS_CLONE3, [3]uint32{}, refused(unix.ENOSYS)},
		"a file in memory":   {unix.SYS_MEMFD_CREATE, [3]uint32{0, unix.MFD_CLOEXEC}, unix.SECCOMP_RET_ALLOW},
	}
	emptying = calls{
		"truncate":          {unix.SYS_TRUNCATE, [3]uint32{}, refused(unix.EACCES)},
		"by its descriptor": {unix.SYS_FTRUNCATE, [3]uint32{}, unix.SECCOMP_RET_ALLOW},
		"flags in memory":   {unix.SYS_OPENAT2, [3]uint32{}, refused(unix.ENOSYS)},
	}
	ungated = calls{
		"execve":   {unix.SYS_EXECVE, [3]uint32{}, unix.SECCOMP_RET_ALLOW},
		"tracing":  {unix.SYS_PTRACE, [3]uint32{}, unix.SECCOMP_RET_ALLOW},
		"a memory": {unix.SYS_MEMFD_CREATE, [3]uint32{}, unix.SECCOMP_RET_ALLOW},
	}
)

func TestTheFilterOfEveryMachine(t *testing.T) {
	for programs, held := range map[Options]calls{0: ungated, Programs: gated} {
		for network, reached := range map[Options]calls{0: online, DenyNetwork: offline} {
			for _, c := range []calls{always, held, reached} {
				c.check(t, programs|network)
			}
		}
	}
}

func TestTheFilterOfOtherWays(t *testing.T) {
	traced.check(t, Traced|DenyNetwork)
	emptying.check(t, NoTruncate)
	for _, call := range opens {
		flags := func(flags, want uint32) asked {
			c := asked{number: call.number, want: want}
			c.args[(call.flags-offArg0)/8] = flags
			return c
		}
		calls{
			"to read":               flags(unix.O_CLOEXEC, unix.SECCOMP_RET_ALLOW),
			"to read and empty":     flags(unix.O_TRUNC|unix.O_CLOEXEC, refused(unix.EACCES)),
			"neither, and empty":    flags(unix.O_TRUNC|3, refused(unix.EACCES)),
			"to write and empty":    flags(unix.O_TRUNC|unix.O_WRONLY|unix.O_CREAT, unix.SECCOMP_RET_ALLOW),
			"to do both, and empty": flags(unix.O_TRUNC|unix.O_RDWR, unix.SECCOMP_RET_ALLOW),
		}.check(t, NoTruncate)
	}
	local := calls{"a Unix socket": {unix.SYS_SOCKET, [3]uint32{unix.AF_UNIX}, unix.SECCOMP_RET_USER_NOTIF}}
	local.check(t, Network|AllSockets)
	always.check(t, Traced|NoTruncate)
}

func refused(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

// evaluate is what the kernel does with a filter, as far as ours needs it.
func evaluate(t *testing.T, filter []unix.SockFilter, arch, number uint32, args ...uint32) uint32 {
	t.Helper()
	data := map[uint32]uint32{offArch: arch, offNumber: number}
	for i, arg := range args {
		data[offArg0+8*uint32(i)] = arg
	}
	var a uint32
	for i := 0; i < len(filter); i++ {
		in := filter[i]
		jump := func(yes bool) {
			if yes {
				i += int(in.Jt)
			} else {
				i += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = data[in.K]
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= in.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(a >= in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(a&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %d isn't known: %+v", i, in)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

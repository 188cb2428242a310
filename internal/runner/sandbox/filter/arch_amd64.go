package filter

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

var opens = []open{{unix.SYS_OPEN, offArg1}, {unix.SYS_OPENAT, offArg2}}

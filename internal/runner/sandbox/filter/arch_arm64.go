package filter

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

var opens = []open{{unix.SYS_OPENAT, offArg2}}

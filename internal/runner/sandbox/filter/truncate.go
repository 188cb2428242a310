package filter

import "golang.org/x/sys/unix"

// open is a system call that opens a file, and where its flags are.
type open struct{ number, flags uint32 }

// truncateFilter refuses what empties a file without opening it to write: Landlock before Linux 6.2 asks about writing only.
// openat2 has its flags in memory; programs do without it.
func truncateFilter() []unix.SockFilter {
	f := denyEach(unix.EACCES, unix.SYS_TRUNCATE)
	f = append(f, denyEach(unix.ENOSYS, unix.SYS_OPENAT2)...)
	f = append(f, denyEach(unix.EPERM, unix.SYS_OPEN_BY_HANDLE_AT)...)
	for _, open := range opens {
		f = append(f, on(open.number, load(open.flags),
			ifSet(unix.O_TRUNC), allow,
			and(unix.O_ACCMODE), jumpEqual(unix.O_WRONLY, 1, 0), jumpEqual(unix.O_RDWR, 0, 1), allow, deny(unix.EACCES))...)
	}
	return f
}

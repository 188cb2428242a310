package kernel

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// Rights of Landlock, by what rules say.
const (
	AccessExecute = unix.LANDLOCK_ACCESS_FS_EXECUTE
	AccessRead    = unix.LANDLOCK_ACCESS_FS_READ_FILE
	// AccessContent changes the content of a file that is there.
	AccessContent = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	AccessWrite   = AccessContent |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	// AccessRefer moves and links between directories. Without it every mv from one directory to another would fail;
	// with it, one that would gain a right on the file still does.
	AccessRefer = unix.LANDLOCK_ACCESS_FS_REFER
	// accessFile are the rights that a rule about a file can have; the others are about directories.
	accessFile = AccessExecute | AccessRead | AccessContent
)

// known keeps the rights that a version of Landlock knows.
func known(access uint64, abi int) uint64 {
	if abi < rules.ABIMoves {
		access &^= AccessRefer
	}
	if abi < rules.ABITruncate {
		access &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	return access
}

// landlockABI returns the version of Landlock; 0 when it isn't there.
func landlockABI() int {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(version)
}

// RuleSet is a set of Landlock rules that a thread can be restricted to. A nil one stands for a node without Landlock.
type RuleSet struct {
	file    *os.File
	handled uint64
	// rules is their number.
	rules int
	err   error
}

// NewRuleSet makes a set that refuses the handled rights, as far as the version of Landlock knows them, wherever no rule grants them,
// and, where it can, signals and abstract sockets to the outside.
func NewRuleSet(handled, handledNet uint64, abi int) (*RuleSet, error) {
	handled = known(handled, abi)
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled, Handled_access_net: handledNet}
	if abi >= rules.ABIScopes {
		attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return nil, fmt.Errorf("make a Landlock ruleset: %w", errno)
	}
	return &RuleSet{file: os.NewFile(fd, "landlock"), handled: handled}, nil
}

// NoRuleSet stands for the descriptor of a set where there is none.
const NoRuleSet = -1

// Descriptor is the open set, which can be passed to the process that will be restricted.
func (r *RuleSet) Descriptor() int {
	if r == nil {
		return NoRuleSet
	}
	return int(r.file.Fd())
}

// Close gives up a set. What was restricted to it stays restricted.
func (r *RuleSet) Close() {
	if r != nil {
		r.file.Close()
	}
}

// Handles reports whether the set refuses some of the rights where no rule grants them.
func (r *RuleSet) Handles(access uint64) bool { return r.handled&access != 0 }

// AllowPath grants rights on a path without links. A path that is gone needs none. One that has become a link gets none: a call
// that runs has replaced it.
func (r *RuleSet) AllowPath(path string, access uint64) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return // a path that can't be opened now can't be opened by the command
	}
	defer unix.Close(fd)
	r.Allow(fd, access)
}

// Allow grants rights on an open file, or on everything below an open directory. Without a set nothing needs to be granted. Err returns
// what fails.
func (r *RuleSet) Allow(fd int, access uint64) {
	if r == nil {
		return
	}
	if err := r.allow(fd, access&r.handled); err != nil && r.err == nil {
		r.err = fmt.Errorf("add a Landlock rule: %w", err)
	}
}

func (r *RuleSet) allow(fd int, access uint64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= accessFile
	}
	if access == 0 {
		return nil
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, r.file.Fd(), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	r.rules++
	return nil
}

// Err is the first error of a grant.
func (r *RuleSet) Err() error { return r.err }

// RestrictSelf puts the calling thread, and what it starts, into the domain of an open set.
func RestrictSelf(set int) error {
	if err := GiveUpPrivileges(); err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(set), 0, 0); errno != 0 {
		return fmt.Errorf("enter the Landlock domain: %w", errno)
	}
	return nil
}

// TryLandlock enters a domain that refuses making block devices only, and returns the version of Landlock; 0 if it can't be used. The
// domain holds for the calling thread.
func TryLandlock() int {
	abi := landlockABI()
	if abi == 0 {
		return 0
	}
	r, err := NewRuleSet(unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK, 0, 0)
	if err != nil {
		return 0
	}
	defer r.Close()
	if RestrictSelf(r.Descriptor()) != nil {
		return 0
	}
	return abi
}

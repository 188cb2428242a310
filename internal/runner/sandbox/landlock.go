package sandbox

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// Rights of Landlock, by what rules say.
const (
	accessExecute = unix.LANDLOCK_ACCESS_FS_EXECUTE
	accessRead    = unix.LANDLOCK_ACCESS_FS_READ_FILE
	// accessContent changes the content of a file that is there.
	accessContent = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	accessWrite   = accessContent |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	// accessRefer moves and links between directories. Without it every mv from one directory to another would fail;
	// with it, one that would gain a right on the file still does.
	accessRefer = unix.LANDLOCK_ACCESS_FS_REFER
	// accessFile are the rights that a rule about a file can have; the others are about directories.
	accessFile = accessExecute | accessRead | accessContent
)

// known keeps the rights that a version of Landlock knows.
func known(access uint64, abi int) uint64 {
	if abi < rules.ABIMoves {
		access &^= accessRefer
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

// ruleset is a set of Landlock rules that a process can be restricted to.
type ruleset struct {
	file    *os.File
	handled uint64
	// count is the number of rules.
	count int
}

// newRuleset makes a set that refuses the handled rights wherever no rule grants them, and, where Landlock can, signals
// and abstract sockets to the outside.
func newRuleset(handled, handledNet uint64, abi int) (*ruleset, error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled, Handled_access_net: handledNet}
	if abi >= rules.ABIScopes {
		attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return nil, fmt.Errorf("make a Landlock ruleset: %w", errno)
	}
	return &ruleset{file: os.NewFile(fd, "landlock"), handled: handled}, nil
}

// noRuleset stands for the descriptor of a ruleset where there is none.
const noRuleset = -1

func (r *ruleset) descriptor() int {
	if r == nil {
		return noRuleset
	}
	return int(r.file.Fd())
}

// allow grants rights on an open file, or on everything below an open directory. Without a ruleset nothing needs to be granted.
func (r *ruleset) allow(fd int, isDir bool, access uint64) error {
	if r == nil {
		return nil
	}
	access &= r.handled
	if !isDir {
		access &= accessFile
	}
	if access == 0 {
		return nil
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, r.file.Fd(), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("add a Landlock rule: %w", errno)
	}
	r.count++
	return nil
}

// restrictSelf puts the calling thread into the domain. It must have given up new privileges.
func restrictSelf(ruleset int) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); errno != 0 {
		return fmt.Errorf("enter the Landlock domain: %w", errno)
	}
	return nil
}

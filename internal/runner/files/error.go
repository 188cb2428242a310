package files

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
)

// Reason is the API's reason for a request that failed.
type Reason string

// Reasons.
const (
	FileNotFound     Reason = result.FileNotFound
	FileExists       Reason = result.FileExists
	IsDirectory      Reason = result.IsDirectory
	NotDirectory     Reason = result.NotDirectory
	PathNotAllowed   Reason = result.PathNotAllowed
	PermissionDenied Reason = result.PermissionDenied
	FileTooLarge     Reason = result.FileTooLarge
	EditNotFound     Reason = result.EditNotFound
	EditAmbiguous    Reason = result.EditAmbiguous
	FileChanged      Reason = result.FileChanged
	NoSpace          Reason = result.NoSpace
	InvalidPattern   Reason = result.InvalidPattern
	FileError        Reason = result.FileError
	InvalidRequest   Reason = result.InvalidRequest
	InvalidRules     Reason = result.InvalidRules
	NotSupported     Reason = result.NotSupported
)

// Error says why a request failed, and what would be right.
type Error struct {
	Reason  Reason
	Message string
	// Cause is the kernel's error, if there is one.
	Cause error
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Cause }

func newError(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// fixes are what a person can do about an error of the kernel.
var fixes = []struct {
	errno  unix.Errno
	reason Reason
	fix    string
}{
	{unix.ENOENT, FileNotFound, "check the path, or look with List or Glob for what is there"},
	{unix.ESTALE, FileNotFound, "it was removed meanwhile; check the path"},
	{unix.EEXIST, FileExists, "choose another path, or remove what is there first"},
	{unix.ENOTDIR, NotDirectory, "a file has nothing below it; check the path, and leave out a slash at its end"},
	{unix.EISDIR, IsDirectory, "name a file"},
	{unix.EACCES, PermissionDenied, "the pod's user needs the permission; Stat shows the file's mode"},
	{unix.EPERM, PermissionDenied, "the pod's user needs the permission; Stat shows the file's mode"},
	{unix.EROFS, PermissionDenied, "the file system is read-only; write to another directory"},
	{unix.ENOSPC, NoSpace, "the file system is full; delete something, or give the volume more space"},
	{unix.EDQUOT, NoSpace, "the quota is used up; delete something, or raise it"},
	{unix.EFBIG, FileTooLarge, "the file system can't hold a file of this size"},
	{unix.ENAMETOOLONG, InvalidRequest, "a name has at most 255 bytes, and a path 4096"},
	{unix.EILSEQ, InvalidRequest, "the file system can't hold such a name; choose another"},
	{unix.ELOOP, PathNotAllowed, "a symbolic link was put there meanwhile; try again"},
	{unix.EXDEV, PathNotAllowed, "it leads out of the allowed directory"},
	{unix.EBUSY, PermissionDenied, "it is in use, for example as a mount point"},
	{unix.ENOTEMPTY, FileChanged, "something was put into it meanwhile; try again"},
	{unix.EINVAL, NotSupported, "the file system refuses it"},
	{unix.ENOSYS, NotSupported, "the kernel can't do it"},
	{unix.EOPNOTSUPP, NotSupported, "the file system can't do it"},
	{unix.EAGAIN, FileChanged, "it is being changed or in use; try again"},
	{unix.EMFILE, FileError, "the runner has too many open files; try again"},
}

// fileError describes an error of the kernel. Other errors, those of a context among them, stay what they are.
func fileError(doing, path string, err error) error {
	var errno unix.Errno
	if known := (*Error)(nil); errors.As(err, &known) {
		return err
	}
	if !errors.As(err, &errno) {
		return err
	}
	for _, known := range fixes {
		if known.errno == errno {
			return &Error{known.reason, fmt.Sprintf("Can't %s %s: %s: %s.", doing, quote(path), errno.Error(), known.fix), errno}
		}
	}
	return &Error{FileError, fmt.Sprintf("Can't %s %s: %s: the file system doesn't work as it should; look at the node or "+
		"its volume.", doing, quote(path), errno.Error()), errno}
}

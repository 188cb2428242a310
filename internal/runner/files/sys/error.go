package sys

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
)

// Error says why a request failed, and what would be right.
type Error struct {
	// Reason is the API's.
	Reason  string
	Message string
	// Cause is the kernel's error, if there is one.
	Cause error
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Cause }

// NewError returns an error with a message.
func NewError(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// fixes are what a person can do about an error of the kernel.
var fixes = []struct {
	errno  unix.Errno
	reason string
	fix    string
}{
	{unix.ENOENT, reason.FileNotFound, "check the path, or look with List or Glob for what is there"},
	{unix.ESTALE, reason.FileNotFound, "it was removed meanwhile; check the path"},
	{unix.EEXIST, reason.FileExists, "choose another path, or remove what is there first"},
	{unix.ENOTDIR, reason.NotDirectory, "a file has nothing below it; check the path, and leave out a slash at its end"},
	{unix.EISDIR, reason.IsDirectory, "name a file"},
	{unix.EACCES, reason.PermissionDenied, "the pod's user needs the permission; Stat shows its mode, and its directory's"},
	{unix.EPERM, reason.PermissionDenied, "the pod's user needs the permission; Stat shows its mode, and its directory's"},
	{unix.EROFS, reason.PermissionDenied, "the file system is read-only; write to another directory"},
	{unix.ENOSPC, reason.NoSpace, "the file system is full; delete something, or give the volume more space"},
	{unix.EDQUOT, reason.NoSpace, "the quota is used up; delete something, or raise it"},
	{unix.EFBIG, reason.FileTooLarge, "the file system can't hold a file of this size"},
	{unix.ENAMETOOLONG, reason.InvalidRequest, "a name has at most 255 bytes, and a path 4096"},
	{unix.EILSEQ, reason.InvalidRequest, "the file system can't hold such a name; choose another"},
	{unix.ELOOP, reason.PathNotAllowed, "a symbolic link was put there meanwhile; try again"},
	{unix.EXDEV, reason.PathNotAllowed, "it leads out of the allowed directory"},
	{unix.EBUSY, reason.PermissionDenied, "it is in use, for example as a mount point"},
	{unix.ENOTEMPTY, reason.FileChanged, "something was put into it meanwhile; try again"},
	{unix.EINVAL, reason.NotSupported, "the file system refuses it"},
	{unix.ENOSYS, reason.NotSupported, "the kernel can't do it"},
	{unix.EOPNOTSUPP, reason.NotSupported, "the file system can't do it"},
	{unix.EAGAIN, reason.FileChanged, "it is being changed or in use; try again"},
	{unix.EMFILE, reason.FileError, "the runner has too many open files; try again"},
}

// FileError describes an error of the kernel. Other errors, those of a context among them, stay what they are.
func FileError(doing, path string, err error) error {
	var errno unix.Errno
	if known := (*Error)(nil); errors.As(err, &known) || !errors.As(err, &errno) {
		return err
	}
	for _, known := range fixes {
		if known.errno == errno {
			return &Error{known.reason, fmt.Sprintf("Can't %s %s: %s: %s.", doing, Quote(path), errno.Error(), known.fix), errno}
		}
	}
	return &Error{reason.FileError, fmt.Sprintf("Can't %s %s: %s: the file system doesn't work as it should; look at the node or "+
		"its volume.", doing, Quote(path), errno.Error()), errno}
}

// With is the error with another message.
func (e *Error) With(message string) *Error { return &Error{e.Reason, message, e.Cause} }

// Ignoring returns an error unless it is one that does no harm.
func Ignoring(err error, harmless ...error) error {
	for _, h := range harmless {
		if errors.Is(err, h) {
			return nil
		}
	}
	return err
}

// Quote makes text safe for a message. It stays whole: whoever shows the message may have values in it to redact, of which a cut
// would leave a part.
func Quote(s string) string { return fmt.Sprintf("%q", s) }

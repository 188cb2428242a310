package kept

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

var errNotAlone = errors.New("another process reached the file while it had a name")

// CreateFile makes a file without a name, in a directory, /tmp when empty. It is nobody's to open, not even its owner's: the command runs as
// the same user.
func CreateFile(dir string) (*os.File, error) {
	dir = cmp.Or(dir, "/tmp")
	// O_EXCL keeps the file from ever getting a name.
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return os.NewFile(uintptr(fd), "kept"), nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOENT):
		// The file system, or the kernel, makes none without a name.
		return createAndUnlink(dir)
	default:
		return nil, fmt.Errorf("make a file for a stream: %w", err)
	}
}

// createAndUnlink takes the name away at once. A process that was quick enough to open the file before must have changed its
// mode, or given it another name.
func createAndUnlink(dir string) (made *os.File, err error) {
	path := filepath.Join(dir, "."+rand.Text())
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("make a file for a stream: %w", err)
	}
	opened := os.NewFile(uintptr(fd), "kept")
	defer func() {
		if err != nil {
			opened.Close()
		}
	}()
	if err := unix.Unlink(path); err != nil {
		return nil, fmt.Errorf("take the name of a file away: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("look at a file: %w", err)
	}
	if st.Nlink != 0 || st.Mode&0o7777 != 0 {
		return nil, errNotAlone
	}
	return opened, nil
}

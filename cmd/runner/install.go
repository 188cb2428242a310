package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// installCommand is the first argument of a runner that copies itself, and the path to copy to is the second. A pod's init
// container runs it where the runner doesn't come as an image volume.
const installCommand = "install"

// install copies a program to a path, for everybody to run and nobody to change. A copy that is there is replaced whole: the
// kubelet may start an init container again.
func install(program, path string) (err error) {
	from, err := os.Open(program)
	if err != nil {
		return fmt.Errorf("open the runner: %w", err)
	}
	defer from.Close()
	to, err := os.CreateTemp(filepath.Dir(path), ".runner-*")
	if err != nil {
		return fmt.Errorf("make a file for the copy: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(to.Name()))
		}
	}()
	_, copyErr := io.Copy(to, from)
	// The pod's umask doesn't count: the call's container may run as another user.
	if err := errors.Join(copyErr, to.Chmod(0o555), to.Close()); err != nil {
		return fmt.Errorf("copy the runner to %s: %w", path, err)
	}
	if err := os.Rename(to.Name(), path); err != nil {
		return fmt.Errorf("put the copy in its place: %w", err)
	}
	return nil
}

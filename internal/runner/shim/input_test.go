package shim

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// What comes later reaches a command that runs, and whoever sends it learns when nobody reads it any more.
func TestACommandReadsWhatComesLater(t *testing.T) {
	b := newBench(t, 1)
	dir, err := os.Open(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for _, withDir := range []bool{false, true} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer write.Close()
		ready := b.fifo("ready")
		cmd := bash(`read x; echo "got $x"; exec </dev/null; echo closed >` + ready + `; pwd >/dev/null`)
		cmd.Input = read
		if withDir {
			cmd.DirFD = dir
		}
		ended := b.start(t.Context(), cmd)
		if _, err := write.WriteString("something\n"); err != nil {
			t.Fatal(err)
		}
		b.read(ready)
		if o := <-ended; text(o.Stdout) != "got something\n" {
			t.Errorf("got %q, %s", text(o.Stdout), reason(o))
		}
		if _, err := write.WriteString("more\n"); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("behind the end: %v", err)
		}
		if err := unix.Unlink(ready); err != nil {
			t.Fatal(err)
		}
	}
}

package plugintest

import (
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// OpenTerminal opens a pseudo-terminal that doesn't change bytes. display returns what it has shown; call it once.
func OpenTerminal(t *testing.T) (tty *os.File, display func() string) {
	t.Helper()
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { controller.Close() })
	fd := int(controller.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := term.MakeRaw(int(tty.Fd())); err != nil {
		t.Fatal(err)
	}
	shown := make(chan string, 1)
	go func() {
		// The read fails once the terminal is closed and everything was read.
		text, _ := io.ReadAll(controller)
		shown <- string(text)
	}()
	return tty, func() string { tty.Close(); return <-shown }
}

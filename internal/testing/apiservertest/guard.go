package apiservertest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// guard is a folder, and a process that waits for the end of this one: it then kills the programs of the folder that still run, and
// deletes the folder. So a panic, a time limit or a signal leaves nothing behind.
type guard struct {
	folder string
	watch  *exec.Cmd
	alive  io.Closer
}

// whenAlone runs until its standard input ends. Each program leads a process group.
const whenAlone = `trap '' INT TERM HUP; cat >/dev/null
while read -r group; do kill -s KILL -- "-$group" 2>/dev/null; done <"$1/running"
rm -rf "$1" || { sleep 1; rm -rf "$1"; }`

// runGuarded notes the process. Only asked for help, a program ends by itself.
const runGuarded = `#!/bin/sh
[ "$1" = --help ] || echo $$ >>%s/running
exec %s "$@"
`

func newGuard() (*guard, error) {
	folder, err := os.MkdirTemp("", "apiservertest-")
	if err != nil {
		return nil, err
	}
	g := &guard{folder: folder, watch: exec.Command("sh", "-c", whenAlone, "sh", folder)}
	g.watch.SysProcAttr = ownGroup()
	g.alive, err = g.watch.StdinPipe()
	if err == nil {
		err = os.WriteFile(g.path("running"), nil, 0o600)
	}
	if err == nil {
		err = g.watch.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return g, nil
}

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func (g *guard) path(name string) string { return filepath.Join(g.folder, name) }

// guarded is the path of a script that runs a program under the guard.
func (g *guard) guarded(program string) (string, error) {
	script := g.path(filepath.Base(program))
	text := fmt.Sprintf(runGuarded, quoted(g.folder), quoted(program))
	return script, os.WriteFile(script, []byte(text), 0o700)
}

func quoted(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }

// end deletes the folder. Its programs must have ended.
func (g *guard) end() error {
	err := os.WriteFile(g.path("running"), nil, 0o600)
	return errors.Join(err, g.alive.Close(), g.watch.Wait())
}

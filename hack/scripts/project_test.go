package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// project is a folder with copies of some scripts in hack/. Programs that they call are fakes, which write down how they are called.
type project struct {
	t   *testing.T
	dir string
}

func newProject(t *testing.T, scripts ...string) project {
	t.Helper()
	p := project{t: t, dir: t.TempDir()}
	for _, name := range append(scripts, "lib.sh") {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		p.write("hack/"+name, string(text))
	}
	return p
}

func (p project) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		p.t.Fatal(err)
	}
}

// fake makes a program of lines in Bash.
func (p project) fake(name, lines string) {
	p.t.Helper()
	p.write("fakes/"+name, "#!/bin/bash\nprintf '%s\\n' \"${0##*/} $*\" >>\"$CALLS\"\n"+lines+"\n")
}

// run gives what a command in Bash printed, and the calls of fakes.
func (p project) run(line string, env ...string) (out, calls string, err error) {
	p.t.Helper()
	path := filepath.Join(p.dir, "calls")
	command := exec.Command("bash", "-c", line)
	command.Dir = p.dir
	command.Env = append([]string{"PATH=" + filepath.Join(p.dir, "fakes") + ":/usr/bin:/bin", "HOME=" + p.dir, "CALLS=" + path}, env...)
	printed, err := command.CombinedOutput()
	called, readErr := os.ReadFile(path)
	if readErr != nil && !os.IsNotExist(readErr) {
		p.t.Fatal(readErr)
	}
	return string(printed), string(called), err
}

package attempts

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

//go:embed testdata/mark.c
var source string

// Mark says what a program does when it runs: it adds a line that begins with the token to the record, wherever it is,
// but as the listed file.
type Mark struct{ Record, Token, Listed string }

// Build compiles the program. It needs gcc.
func (m Mark) Build(to string) error {
	file := filepath.Join(filepath.Dir(to), "mark.c")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		return err
	}
	defer os.Remove(file)
	dekot := []byte(m.Token)
	slices.Reverse(dekot)
	define := func(name, value string) string { return fmt.Sprintf("-D%s=%q", name, value) }
	out, err := exec.Command("gcc", "-O1", "-s", "-o", to, define("RECORD", m.Record), define("DEKOT", string(dekot)), define("LISTED", m.Listed), file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("compile the mark: %w: %s", err, out)
	}
	return nil
}

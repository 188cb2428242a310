package figures

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Commit of the checkout that a benchmark is run from, with a plus sign when it has changes; empty when git can't say.
func Commit() string {
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return ""
	}
	id := strings.TrimSpace(string(head))
	if changes, err := exec.Command("git", "status", "--porcelain").Output(); err != nil || len(changes) > 0 {
		id += "+"
	}
	return id
}

// Load is the machine's load average over the last minute; empty where there is no /proc.
func Load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// Save writes a report as JSON, and makes the file's folder; without a file it does nothing.
func Save(file string, report any) error {
	if file == "" {
		return nil
	}
	raw, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make the report's folder: %w", err)
	}
	if err := os.WriteFile(file, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// Read reads what Save has written.
func Read(file string, report any) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the figures of an earlier run: %w", err)
	}
	if err := json.Unmarshal(raw, report); err != nil {
		return fmt.Errorf("%s is not the JSON file of a run: %w", file, err)
	}
	return nil
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// The processes that share the machine in a run, as they are named in the report.
const (
	processOperator  = "operator"
	processServer    = "API server"
	processEtcd      = "etcd"
	processBenchmark = "benchmark"
)

// commands are the names that the kernel has for the children.
var commands = map[string]string{"manager": processOperator, "kube-apiserver": processServer, "etcd": processEtcd}

// processTimes is the processor time that this process and each of its children has used.
func processTimes() (map[string]time.Duration, error) {
	own := os.Getpid()
	raw, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return nil, fmt.Errorf("read the benchmark's CPU time: %w", err)
	}
	mine, err := parseCPU(raw)
	if err != nil {
		return nil, err
	}
	times := map[string]time.Duration{processBenchmark: mine}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || len(raw) == 0 {
			// It has ended.
			continue
		}
		name, parent := parseParent(raw)
		if parent != own || commands[name] == "" {
			continue
		}
		if times[commands[name]], err = parseCPU(raw); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// parseParent reads the name, which stands in parentheses, and the parent, which is the second field after it.
func parseParent(stat []byte) (name string, parent int) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return "", 0
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	return string(stat[open+1 : end]), parent
}

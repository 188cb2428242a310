package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Record is what a start notes down for the commands after it.
type Record struct {
	BootID      string
	Subnet      string
	Fingerprint string
	Sysctls     map[string]string
}

const recordName = "cluster.json"

// kubeletSysctls are settings of the whole machine that the kubelet changes.
var kubeletSysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// NewRecord reads what has to be put back later.
func NewRecord() (Record, error) {
	boot, err := bootID()
	if err != nil {
		return Record{}, err
	}
	r := Record{BootID: boot, Sysctls: map[string]string{}}
	for _, name := range kubeletSysctls {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			return r, fmt.Errorf("reading a kernel setting: %w", err)
		}
		r.Sysctls[name] = strings.TrimSpace(string(value))
	}
	return r, nil
}

// ReadRecord returns nil where there is none.
func ReadRecord(dir string) (*Record, error) {
	text, err := os.ReadFile(filepath.Join(dir, recordName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's record: %w", err)
	}
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, nil // a record cut off by a crash tells nothing
	}
	return &r, nil
}

// Write stores the record whole or not at all.
func (r Record) Write(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, recordName)
	if err := os.WriteFile(path+".tmp", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// restoreSysctls puts kernel settings back, unless the machine was rebooted.
func (r Record) restoreSysctls() error {
	boot, err := bootID()
	if err != nil || boot != r.BootID {
		return err
	}
	var errs []error
	for name, value := range r.Sysctls {
		path := filepath.Join("/proc/sys", name)
		have, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(have)) == value {
			continue
		}
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			errs = append(errs, fmt.Errorf("putting a kernel setting back: %w", err))
		}
	}
	return errors.Join(errs...)
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

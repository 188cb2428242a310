package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// record is what a start notes down, to be put back when the cluster is taken down.
type record struct {
	BootID  string
	Sysctls map[string]string
}

const recordName = "cluster.json"

// kubeletSysctls are settings of the whole machine that the kubelet changes.
var kubeletSysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// WriteRecord stores what has to be put back later, whole or not at all.
func WriteRecord(dir string) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	r := record{BootID: boot, Sysctls: map[string]string{}}
	for _, name := range kubeletSysctls {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			return fmt.Errorf("reading a kernel setting: %w", err)
		}
		r.Sysctls[name] = strings.TrimSpace(string(value))
	}
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

// readRecord returns an empty one where there is none.
func readRecord(dir string) (r record, err error) {
	text, err := os.ReadFile(filepath.Join(dir, recordName))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, fmt.Errorf("reading the cluster's record: %w", err)
	}
	return r, nil
}

// restoreSysctls puts kernel settings back, unless the machine was rebooted.
func (r record) restoreSysctls() error {
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

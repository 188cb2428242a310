package result

// Usage is what a command's processes took of their node, by the kernel's own account. A number that the kernel doesn't
// give is nil.
type Usage struct {
	// CPUMilliseconds is the processor time of all processes, in user mode and in the kernel.
	CPUMilliseconds *int64 `json:"cpuMilliseconds,omitempty"`
	// MaxRSSBytes is the most memory that one of the processes had at a time.
	MaxRSSBytes *int64 `json:"maxRSSBytes,omitempty"`
	// ReadBytes were fetched from storage, WrittenBytes put into files on storage.
	ReadBytes    *int64 `json:"readBytes,omitempty"`
	WrittenBytes *int64 `json:"writtenBytes,omitempty"`
	// PeakProcesses is the most processes and threads that the container had at a time.
	PeakProcesses *int64 `json:"peakProcesses,omitempty"`
}

// shortened is the usage without numbers that can't be.
func (u *Usage) shortened() *Usage {
	if u == nil {
		return nil
	}
	may := *u
	dropNegative(&may.CPUMilliseconds, &may.MaxRSSBytes, &may.ReadBytes, &may.WrittenBytes, &may.PeakProcesses)
	return &may
}

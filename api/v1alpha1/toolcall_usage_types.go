package v1alpha1

// CallUsage is what a call's processes took of their node, by the kernel's own account. A field that the kernel doesn't tell is
// absent.
type CallUsage struct {
	// cpuMilliseconds is the processor time of all processes that ended with the call, in user mode and in the kernel, in
	// milliseconds.
	// +optional
	CPUMilliseconds *int64 `json:"cpuMilliseconds,omitempty"`

	// maxRSSBytes is the most memory that a single process of the call had at a time, in bytes, with the files that it mapped
	// (ru_maxrss of getrusage(2)). Absent when no process had at least 1 MiB more than the runner: the kernel
	// counts the memory of the process that a command is started from as the command's.
	// +optional
	MaxRSSBytes *int64 `json:"maxRSSBytes,omitempty"`

	// readBytes is how many bytes the processes had fetched from storage (ru_inblock of getrusage(2), times 512). What the kernel
	// had in memory already isn't counted, nor are pipes, sockets and files in memory.
	// +optional
	ReadBytes *int64 `json:"readBytes,omitempty"`

	// writtenBytes is how many bytes of files the processes changed that go to storage, in whole pages of memory, mostly 4096
	// bytes (ru_oublock of getrusage(2), times 512). Pipes, sockets and files in memory aren't counted.
	// +optional
	WrittenBytes *int64 `json:"writtenBytes,omitempty"`

	// peakProcesses is the most processes and threads that the call's container had at a time (pids.peak of its control group),
	// those of the runner and of the container's start among them. Absent in sessions, whose calls share a container, and
	// on kernels before 6.1.
	// +optional
	PeakProcesses *int64 `json:"peakProcesses,omitempty"`
}

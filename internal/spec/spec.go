// Package spec holds plain values: what a call does, and the limits that hold it. The operator decides them once, from the API's
// objects. The stored decision, the assignment and the command embed them. To add a limit, add a field here, the code that sets it and
// the code that uses it.
//
// The runner links this package: it imports the standard library and other packages of plain values only.
package spec

import (
	"net/netip"
	"time"

	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// Bounds are the limits and walls of a process.
type Bounds struct {
	// TimeoutMilliseconds is how long the process may run, by the wall clock; 0 is no limit, for a background call alone.
	TimeoutMilliseconds int64 `json:"timeoutMilliseconds"`
	// MaxBytesPerStream is how many bytes of each output stream the status keeps: half of them from its start, half from its end.
	MaxBytesPerStream int `json:"maxBytesPerStream"`
	// KeepBytesPerStream is how many bytes of each output stream the pod keeps for readers, if that is more: in a file below /tmp that
	// the process can't open. 0 is none.
	KeepBytesPerStream int64 `json:"keepBytesPerStream,omitempty"`
	// DenyNetwork makes all sockets but Unix sockets fail, for the process and all that it starts.
	DenyNetwork bool `json:"denyNetwork,omitempty"`
	// Rules are what the kernel holds the process and all that it starts to; nil for nothing. A process whose rules the node can't hold
	// isn't started.
	Rules *rules.Rules `json:"rules,omitempty"`
}

// Timeout is how long the process may run; 0 is no limit.
func (b *Bounds) Timeout() time.Duration {
	return time.Duration(b.TimeoutMilliseconds) * time.Millisecond
}

// Network is what a process may connect to, and what its names are looked up with.
type Network struct {
	// Rules decide about each connection and each name. The runner adds what only its pod knows: the addresses of the node.
	Rules network.Rules `json:"rules"`
	// Nameservers are the cluster's, which are asked for names. Search is the search list of the pod's resolv.conf.
	Nameservers []netip.AddrPort `json:"nameservers,omitempty"`
	Search      []string         `json:"search,omitempty"`
}

// Collect says which files to keep when the process has ended.
type Collect struct {
	// Globs are relative to the working directory, absolute, or in the home directory if they begin with "~/".
	Globs []string `json:"globs,omitempty"`
	// WritePaths are the directories below which files are kept; nil for those that a call writes to where its policy says nothing.
	// DeniedPaths are globs of what isn't kept.
	WritePaths  []string `json:"writePaths,omitzero"`
	DeniedPaths []string `json:"deniedPaths,omitempty"`
	// MaxCount bounds the files, MaxBytes the size of each, MaxTotalBytes that of all.
	MaxCount      int   `json:"maxCount"`
	MaxBytes      int64 `json:"maxBytes"`
	MaxTotalBytes int64 `json:"maxTotalBytes"`
}

//go:build !amd64 && !arm64

package filter

// Without a filter a command that must not reach the network is not started.
const auditArch = 0

var opens []open

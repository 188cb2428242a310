package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Variables through which the operator tells a pod's runner where it belongs. The runner removes every
// variable under Prefix from what a command gets, whatever the policy's blocklist says.
const (
	Prefix       = "TOOLCALL_RUNNER_"
	EnvEndpoints = Prefix + "ENDPOINTS"
	EnvCA        = Prefix + "CA"
	EnvToken     = Prefix + "TOKEN"
	EnvNamespace = Prefix + "NAMESPACE"
	EnvCall      = Prefix + "CALL"
	EnvPool      = Prefix + "POOL"
	EnvJob       = Prefix + "JOB"
	EnvJobUID    = Prefix + "JOB_UID"
	EnvPod       = Prefix + "POD"
	EnvPodUID    = Prefix + "POD_UID"
	EnvNode      = Prefix + "NODE"
	// EnvHostIPs are the addresses of the node, separated by commas.
	EnvHostIPs = Prefix + "HOST_IPS"
	// EnvRefPrefix and a number name a variable that the kubelet resolves from a reference.
	EnvRefPrefix = Prefix + "REF_"
)

// Internal says whether a variable is between operator and runner only.
func Internal(name string) bool { return strings.HasPrefix(name, Prefix) }

// RefName is the name of a variable that the kubelet resolves, from what it refers to.
func RefName(source string) string {
	sum := sha256.Sum256([]byte(source))
	return EnvRefPrefix + hex.EncodeToString(sum[:12])
}

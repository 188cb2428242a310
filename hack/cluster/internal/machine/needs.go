package machine

import "toolcall.dev/operator/hack/debian"

// RuntimeNeeds are used by the running node.
func RuntimeNeeds() []debian.Need {
	return []debian.Need{
		{Program: "ip", Package: "iproute2", Why: "the link to the node"},
		{Program: "iptables", Package: "iptables", Why: "kube-proxy and the pod network"},
		{Program: "nsenter", Package: "util-linux", Why: "commands inside the node"},
		{Program: "mount", Package: "mount", Why: "the kubelet's volumes"},
		{Program: "mkfs.ext4", Package: "e2fsprogs", Why: "volumes of claims"},
		{File: "/etc/ssl/certs/ca-certificates.crt", Package: "ca-certificates", Why: "fetching Go modules"},
	}
}

// BuildNeeds are used to compile runc, the only program that needs C.
func BuildNeeds() []debian.Need {
	return []debian.Need{
		{Program: "gcc", Package: "gcc", Why: "compiling runc"},
		{File: "/usr/include/stdlib.h", Package: "libc6-dev", Why: "compiling runc"},
		{File: "/usr/include/seccomp.h", Package: "libseccomp-dev", Why: "seccomp in runc"},
		{Program: "pkg-config", Package: "pkg-config", Why: "finding libseccomp"},
	}
}

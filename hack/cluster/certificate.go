package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"
)

// certificate writes tls.crt and tls.key into a folder: a server's certificate for the given names, with the
// authority that signed it. The authority's key is thrown away.
func certificate(args []string) error {
	if len(args) < 2 {
		return errors.New("certificate needs a folder and at least one name")
	}
	var ips []net.IP
	var names []string
	for _, name := range args[2:] {
		if ip := net.ParseIP(name); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, name)
		}
	}
	chain, key, err := cert.GenerateSelfSignedCertKey(args[1], ips, names)
	if err != nil {
		return fmt.Errorf("make a certificate for %s: %w", args[1], err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(args[0], "tls.crt"), chain, 0o600),
		os.WriteFile(filepath.Join(args[0], "tls.key"), key, 0o600),
	)
}

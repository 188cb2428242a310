// Package address finds addresses for servers that tests start. Only tests import it.
package address

import (
	"net"
	"testing"
)

// Free returns an address of this machine, with a port, that no process listens on.
func Free(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Package address finds addresses for servers that tests start. Only tests import it.
package address

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Free returns an address of this machine, with a port that no process listens on. The port is below those that the kernel chooses, so that
// no connection of another process takes it before the server does.
func Free(t testing.TB) string {
	t.Helper()
	for tries := 0; ; tries++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
		if tries == 100 {
			t.Fatal(err)
		}
	}
}

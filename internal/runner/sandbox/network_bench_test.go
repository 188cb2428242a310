package sandbox

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/runner/sandbox/sockets"
)

// connectCost are the medians of many sockets and connections in one command.
func connectCost(b *testing.B, out string) (socket, connect time.Duration) {
	b.Helper()
	var sockets, connects []int
	for scanner := bufio.NewScanner(strings.NewReader(out)); scanner.Scan(); {
		var s, c int
		if _, err := fmt.Sscan(scanner.Text(), &s, &c); err != nil {
			b.Fatal(scanner.Text())
		}
		sockets, connects = append(sockets, s), append(connects, c)
	}
	slices.Sort(sockets)
	slices.Sort(connects)
	return time.Duration(sockets[len(sockets)/2]), time.Duration(connects[len(connects)/2])
}

// BenchmarkConnect is what a connection to a server on this machine costs, without the gate, and with it in each way. They take turns:
// load hits all alike.
func BenchmarkConnect(b *testing.B) {
	const times = "500"
	s := serve(b, "127.0.0.1:0")
	cost := map[string][]time.Duration{}
	add := func(name, out string) {
		socket, connect := connectCost(b, out)
		cost["socket-"+name], cost["connect-"+name] = append(cost["socket-"+name], socket), append(cost["connect-"+name], connect)
	}
	defer func() { support = func() rules.Support { return supportOnce() } }()
	for b.Loop() {
		plain := exec.Command(self(b), s.port(), times)
		plain.Env = []string{childVariable + "=connect"}
		without, err := plain.Output()
		if err != nil {
			b.Fatal(err)
		}
		add("without", string(without))
		for name, abi := range map[string]int{"Landlock": supportOnce().LandlockABI, "Linux-6.2": rules.ABITruncate, "no-Landlock": 0} {
			forced := supportOnce()
			forced.LandlockABI = abi
			support = func() rules.Support { return forced }
			with, _ := (&command{
				network: &sockets.Network{Connections: &decider{all: true}}, argv: []string{self(b), s.port(), times}, env: plain.Env,
			}).run(b)
			add(name, with)
		}
	}
	for name, took := range cost {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-µs-"+name)
	}
}

// BenchmarkThroughput is what a connection carries, with the gate and without.
func BenchmarkThroughput(b *testing.B) {
	const size = 1 << 30
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	source := pythonPrelude + `
s = socket.create_connection(("127.0.0.1", port(1))); block = bytes(1 << 20)
for _ in range(` + strconv.Itoa(size>>20) + `): s.sendall(block)`
	_, port, _ := net.SplitHostPort(l.Addr().String())
	argv := []string{programPath(b, "python3"), "-c", source, port}
	receive := func() (rate float64) {
		c, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		began := time.Now()
		n, _ := io.Copy(io.Discard, c)
		return float64(n) / time.Since(began).Seconds() / 1e6
	}
	var rates [2][]float64
	for b.Loop() {
		plain := exec.Command(argv[0], argv[1:]...)
		plain.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a session is scheduled as one, and a stage has its own
		if err := plain.Start(); err != nil {
			b.Fatal(err)
		}
		rates[0] = append(rates[0], receive())
		_ = plain.Wait()
		gated := (&command{network: &sockets.Network{Connections: &decider{all: true}}, argv: argv}).start(b)
		rates[1] = append(rates[1], receive())
		gated.wait()
	}
	for i, name := range []string{"without", "with"} {
		slices.Sort(rates[i])
		b.ReportMetric(rates[i][len(rates[i])/2], "MB/s-"+name)
	}
}

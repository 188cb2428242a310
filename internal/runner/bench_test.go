package runner

import (
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func BenchmarkTrueThroughRun(b *testing.B) {
	for name, cmd := range map[string]Command{"plain": program("/bin/true"), "offline": offlineTrue()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if o := Run(b.Context(), cmd); o.ExitCode == nil || *o.ExitCode != 0 {
					b.Fatal(describe(o))
				}
			}
		})
	}
}

// BenchmarkTrueAsTheFirstProcess is what a pod pays.
func BenchmarkTrueAsTheFirstProcess(b *testing.B) {
	for _, network := range []string{"online", "offline"} {
		b.Run(network, func(b *testing.B) {
			argv := append(asInit(b), publicSelf(b), strconv.Itoa(b.N), network)
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Env = []string{helperVariable + "=loop", "PATH=" + testPath}
			out, err := cmd.Output()
			if err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			total, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(total/float64(b.N), "ns/op")
		})
	}
}

func offlineTrue() Command {
	cmd := program("/bin/true")
	cmd.DenyNetwork = true
	return cmd
}

// BenchmarkTrueThroughExec is what the standard library takes for a process whose output is captured.
func BenchmarkTrueThroughExec(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		cmd := exec.Command("/bin/true")
		cmd.Env = []string{}
		if _, err := cmd.Output(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCaptureOf100MB(b *testing.B) {
	const size = 100 << 20
	for name, live := range map[string]io.Writer{"alone": nil, "with a live copy": io.Discard} {
		b.Run(name, func(b *testing.B) {
			cmd := helperCommand(b, "flood", strconv.Itoa(size))
			cmd.Stdout = live
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				if o := Run(b.Context(), cmd); o.Stdout.Bytes != size {
					b.Fatal(describe(o))
				}
			}
		})
	}
}

func BenchmarkCaptureWrite(b *testing.B) {
	chunk := make([]byte, chunkSize)
	for i := range chunk {
		chunk[i] = byte('a' + i%26)
	}
	c := newCapture(64 << 10)
	b.SetBytes(chunkSize)
	for b.Loop() {
		c.write(chunk)
	}
}

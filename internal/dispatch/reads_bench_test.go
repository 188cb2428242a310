package dispatch_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/supervisor"
)

// benchedReader reads what a stream of a real runner has, over TLS on the loopback network.
func benchedReader(b *testing.B, stdout *kept.Stream) output.Reader {
	b.Helper()
	o := startOperator(b, newIdentity(b))
	config := runnerOf(b, podEnv(o, "job"))
	s := &supervisor.Supervisor{
		Outputs: supervisor.NewOutputs(),
		Dial: func(ctx context.Context, serving *wire.Serving) (supervisor.Conn, error) {
			return config.Dial(ctx, serving)
		},
		SaveCopy: func(*wire.Result) {},
	}
	runs := make(chan struct{})
	s.Begin = func(*wire.Begin) supervisor.ExecuteFunc {
		return func(ctx context.Context, a *wire.Assignment) *wire.Result {
			s.Outputs.Set(a.CallUID, stdout, kept.New(kept.Limits{}))
			close(runs)
			<-ctx.Done()
			return resultIn(a.CallUID, "")
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx, ctx) }()
	b.Cleanup(func() { cancel(); <-ended })
	session := o.event(b)
	if err := session.Begin(beginOf(theCall)); err != nil {
		b.Fatal(err)
	}
	if err := session.Assign("c1", &wire.Assignment{CallUID: "c1", CallName: "call"}); err != nil {
		b.Fatal(err)
	}
	<-runs
	source := &dispatch.RunnerSource{Hub: o.hub, RunnerOf: func(context.Context, output.Key) (string, error) { return session.KeyHash(), nil }}
	r, err := source.Open(b.Context(), keyOf("c1"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(r.Close)
	return r
}

// reportTimes reports the median and the 99th percentile.
func reportTimes(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkRange reads 64 KiB at a time, of a stream that is kept in a file.
func BenchmarkRange(b *testing.B) {
	const size = 32 << 20
	stdout := kept.New(kept.Limits{Memory: 1000, Disk: size, Dir: b.TempDir()})
	defer stdout.Drop()
	_, _ = stdout.Write(make([]byte, size))
	r := benchedReader(b, stdout)
	p := make([]byte, 64<<10)
	var times []time.Duration
	b.SetBytes(int64(len(p)))
	for at := int64(0); b.Loop(); at = (at + int64(len(p))) % size {
		began := time.Now()
		for got := 0; got < len(p); {
			n, err := r.ReadAt(b.Context(), p[got:], at+int64(got))
			if err != nil {
				b.Fatal(err)
			}
			got += n
		}
		times = append(times, time.Since(began))
	}
	reportTimes(b, times)
}

// BenchmarkFollow is from a write of the process to the bytes at a reader that follows.
func BenchmarkFollow(b *testing.B) {
	stdout := kept.New(kept.Limits{Memory: 64 << 10, Disk: 1 << 20, Dir: b.TempDir()})
	defer stdout.Drop()
	r := benchedReader(b, stdout)
	p := make([]byte, 100)
	var times []time.Duration
	wrote := make(chan time.Time, 1)
	at := int64(0)
	for b.Loop() {
		go func() {
			began := time.Now()
			_, _ = stdout.Write([]byte("line\n"))
			wrote <- began
		}()
		if err := r.Wait(b.Context(), at); err != nil {
			b.Fatal(err)
		}
		n, err := r.ReadAt(b.Context(), p, at)
		if err != nil {
			b.Fatal(err)
		}
		at += int64(n)
		times = append(times, time.Since(<-wrote))
	}
	reportTimes(b, times)
}

package dispatch_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/supervisor"
)

// outputWorld is an operator, and a real runner of a session whose calls write what the test says.
type outputWorld struct {
	t      *testing.T
	o      *operator
	n      *network
	source *dispatch.RunnerSource
	// limits are what is kept of the calls' streams.
	limits kept.Limits
	over   chan error

	mu   sync.Mutex
	conn net.Conn
	// away says that the runner can't connect.
	away  bool
	calls map[string]*written
}

// written is what a call writes.
type written struct {
	stdout, stderr *kept.Stream
	over           chan struct{}
}

func newOutputWorld(t *testing.T, limits kept.Limits) *outputWorld {
	t.Helper()
	n, o := bubble(t, dispatch.Limits{})
	w := &outputWorld{t: t, n: n, o: o, limits: limits, calls: map[string]*written{}, over: make(chan error, 1)}
	env := podEnv(o, "job")
	env[wire.EnvCall], env[wire.EnvPool] = "", "env"
	config := runnerOf(t, env)
	config.DialContext = w.dial
	s := &supervisor.Supervisor{
		Outputs: supervisor.NewOutputs(),
		Dial: func(ctx context.Context, serving *wire.Serving) (supervisor.Conn, error) {
			return config.Dial(ctx, serving)
		},
	}
	s.Begin = func(*wire.Begin) supervisor.ExecuteFunc {
		return func(ctx context.Context, a *wire.Assignment) *wire.Result {
			return w.execute(ctx, s.Outputs, a)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { w.over <- s.Run(ctx, ctx) }()
	t.Cleanup(func() { cancel(); w.cut(); <-w.over })
	session := o.event(t)
	if err := session.Begin(theBegin()); err != nil {
		t.Fatal(err)
	}
	w.source = sourceOf(o, session.KeyHash())
	return w
}

// sourceOf is a source that knows of one runner.
func sourceOf(o *operator, keyHash string) *dispatch.RunnerSource {
	return &dispatch.RunnerSource{Hub: o.hub, RunnerOf: func(_ context.Context, key output.Key) (string, error) {
		if key.Namespace != "ns" {
			return "", nil
		}
		return keyHash, nil
	}}
}

func (w *outputWorld) dial(context.Context, string, string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		return nil, errors.New("no network")
	}
	conn, err := w.n.from("10.1.0.1")
	w.conn = conn
	return conn, err
}

func (w *outputWorld) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != nil {
		w.conn.Close()
	}
}

func (w *outputWorld) setAway(away bool) {
	w.mu.Lock()
	w.away = away
	w.mu.Unlock()
	w.cut()
}

func (w *outputWorld) execute(ctx context.Context, outputs *supervisor.Outputs, a *wire.Assignment) *wire.Result {
	c := &written{stdout: kept.New(w.limits), stderr: kept.New(w.limits), over: make(chan struct{})}
	w.mu.Lock()
	w.calls[a.CallUID] = c
	w.mu.Unlock()
	outputs.Set(a.CallUID, c.stdout, c.stderr)
	select {
	case <-c.over:
	case <-ctx.Done():
	}
	c.stdout.Finish(true, time.Minute)
	c.stderr.Finish(true, time.Minute)
	return &wire.Result{CallUID: a.CallUID, Outcome: result.Outcome{Reason: result.Completed, Started: true, ExitCode: result.Exit(0)}}
}

// start has a call run.
func (w *outputWorld) start(uid string) *written {
	w.t.Helper()
	if err := w.o.hub.Runner("job-uid").Assign("s1", assignmentOf(uid)); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[uid]
}

func keyOf(uid string) output.Key {
	return output.Key{Namespace: "ns", Name: "call-" + uid, UID: types.UID(uid), Stream: output.Stdout}
}

func (w *outputWorld) open(uid string) output.Reader {
	w.t.Helper()
	r, err := w.source.Open(w.t.Context(), keyOf(uid))
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// inOutputWorld runs a test in a bubble.
func inOutputWorld(t *testing.T, limits kept.Limits, test func(t *testing.T, w *outputWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		t.Cleanup(func() { close(over) })
		w := newOutputWorld(t, limits)
		go func() {
			// Nobody looks at the news.
			for {
				select {
				case <-w.o.events:
				case <-over:
					return
				}
			}
		}()
		test(t, w)
	})
}

// copyFrom reads to the end of a stream, over what is missing, in pieces as pause says.
func copyFrom(ctx context.Context, r output.Reader, offset int64, pause func() int) (got []byte, missing int64, err error) {
	for {
		p := make([]byte, pause())
		n, err := r.ReadAt(ctx, p, offset)
		got, offset = append(got, p[:n]...), offset+int64(n)
		var gap *output.MissingError
		switch {
		case err == nil:
		case errors.As(err, &gap):
			missing += gap.Next - offset
			offset = gap.Next
		case errors.Is(err, output.ErrNoMore):
			if err := r.Wait(ctx, offset); err != nil {
				return got, missing, err
			}
		case errors.Is(err, io.EOF):
			return got, missing, nil
		default:
			return got, missing, err
		}
	}
}

func randomText(random *rand.Rand, n int) []byte {
	text := make([]byte, n)
	for i := range text {
		text[i] = byte(random.Uint32())
	}
	return text
}

// However the connection breaks: each reader gets each byte once, and in order.
func TestReadersGetEachByteOnceWhateverBreaks(t *testing.T) {
	for seed := range uint64(15) {
		inOutputWorld(t, kept.Limits{Memory: 1000, Disk: 1 << 20, Dir: t.TempDir()}, func(t *testing.T, w *outputWorld) {
			random := rand.New(rand.NewPCG(seed, 17))
			text := randomText(random, 400_000)
			c := w.start("c1")
			var all sync.WaitGroup
			for i := range 6 {
				dice := rand.New(rand.NewPCG(seed, uint64(100+i)))
				all.Go(func() {
					time.Sleep(time.Duration(dice.IntN(3000)) * time.Millisecond)
					var r output.Reader
					for r == nil {
						// It may be away just now.
						r, _ = w.source.Open(t.Context(), keyOf("c1"))
						time.Sleep(10 * time.Millisecond)
					}
					defer r.Close()
					from := dice.IntN(2) * dice.IntN(len(text))
					got, missing, err := copyFrom(t.Context(), r, int64(from), func() int {
						if dice.IntN(4) == 0 {
							time.Sleep(time.Duration(dice.IntN(100)) * time.Millisecond)
						}
						return 1 + dice.IntN(100_000)
					})
					if err != nil || missing != 0 || !bytes.Equal(got, text[from:]) {
						t.Errorf("seed %d: from %d got %d bytes, %d missing, %v", seed, from, len(got), missing, err)
					}
					if info := r.Info(); info != c.stdout.Info() {
						t.Errorf("seed %d: knows %+v", seed, info)
					}
				})
			}
			stop := make(chan struct{})
			all.Go(func() {
				dice := rand.New(rand.NewPCG(seed, 99))
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(dice.IntN(500)) * time.Millisecond):
						w.cut()
					}
				}
			})
			for at := 0; at < len(text); {
				next := min(len(text), at+1+random.IntN(20_000))
				_, _ = c.stdout.Write(text[at:next])
				at = next
				time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
			}
			close(stop)
			close(c.over)
			all.Wait()
		})
	}
}

func TestReadersAreToldWhatWasNotKept(t *testing.T) {
	inOutputWorld(t, kept.Limits{Memory: 100, Disk: 10_000, Dir: t.TempDir()}, func(t *testing.T, w *outputWorld) {
		c := w.start("c1")
		text := randomText(rand.New(rand.NewPCG(1, 2)), 1_000_000)
		_, _ = c.stdout.Write(text)
		r := w.open("c1")
		defer r.Close()
		close(c.over)
		got, missing, err := copyFrom(t.Context(), r, 0, func() int { return 700 })
		if err != nil || missing != 990_000 || !bytes.Equal(got, append(bytes.Clone(text[:5000]), text[995_000:]...)) {
			t.Errorf("got %d bytes, %d missing, %v", len(got), missing, err)
		}
		if info := r.Info(); info != c.stdout.Info() || info.SHA256 == "" {
			t.Errorf("knows %+v", info)
		}
		for _, offset := range []int64{-1, 1_000_000, 2_000_000, 500_000} {
			if n, err := r.ReadAt(t.Context(), make([]byte, 5), offset); n != 0 || err == nil {
				t.Errorf("at %d: %d bytes, %v", offset, n, err)
			}
		}
	})
}

func TestASourceHasOnlyWhatTheRecordedRunnerHas(t *testing.T) {
	inOutputWorld(t, kept.Limits{Memory: 100}, func(t *testing.T, w *outputWorld) {
		w.start("c1")
		for name, key := range map[string]output.Key{
			"another call":      keyOf("c2"),
			"another namespace": {Namespace: "other", Name: "call-c1", UID: "c1", Stream: output.Stdout},
		} {
			if _, err := w.source.Open(t.Context(), key); !errors.Is(err, output.ErrNotFound) || errors.Is(err, dispatch.ErrAway) {
				t.Errorf("%s: %v", name, err)
			}
		}
		failing := errors.New("nobody knows")
		w.source.RunnerOf = func(context.Context, output.Key) (string, error) { return "", failing }
		if _, err := w.source.Open(t.Context(), keyOf("c1")); !errors.Is(err, failing) {
			t.Errorf("got %v", err)
		}
		w.source.RunnerOf = func(context.Context, output.Key) (string, error) { return "another key", nil }
		if _, err := w.source.Open(t.Context(), keyOf("c1")); !errors.Is(err, dispatch.ErrAway) || !errors.Is(err, output.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAReaderWaitsForARunnerThatComesBackAndNoLonger(t *testing.T) {
	inOutputWorld(t, kept.Limits{Memory: 100}, func(t *testing.T, w *outputWorld) {
		c := w.start("c1")
		_, _ = c.stdout.Write([]byte("abc"))
		r := w.open("c1")
		defer r.Close()
		w.setAway(true)
		synctest.Wait()
		read := make(chan string)
		go func() {
			p := make([]byte, 10)
			n, err := r.ReadAt(t.Context(), p, 0)
			if err != nil {
				t.Error(err)
			}
			read <- string(p[:n])
		}()
		time.Sleep(dispatch.ReconnectWait - 5*time.Second)
		w.setAway(false)
		if got := <-read; got != "abc" {
			t.Errorf("read %q", got)
		}
		w.setAway(true)
		synctest.Wait()
		began := time.Now()
		if err := r.Wait(t.Context(), 3); !errors.Is(err, dispatch.ErrAway) || time.Since(began) != dispatch.ReconnectWait {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
		impatient, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.ReadAt(impatient, make([]byte, 1), 3); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		w.setAway(false)
		close(c.over)
		if err := r.Wait(t.Context(), 3); err != nil {
			t.Error(err)
		}
	})
}

// A call's result and the pings of its runner pass while many read much.
func TestResultsPassWhileManyRead(t *testing.T) {
	inOutputWorld(t, kept.Limits{Memory: 100, Disk: 1 << 20, Dir: t.TempDir()}, func(t *testing.T, w *outputWorld) {
		c, other := w.start("c1"), w.start("c2")
		text := randomText(rand.New(rand.NewPCG(1, 2)), 1<<18)
		_, _ = c.stdout.Write(text)
		var readers sync.WaitGroup
		for i := range 50 {
			r := w.open("c1")
			readers.Go(func() {
				defer r.Close()
				// Each is somewhere else, and asks for itself.
				if got, _, err := copyFrom(t.Context(), r, int64(i*1000), func() int { return 5000 + i }); err != nil || !bytes.Equal(got, text[i*1000:]) {
					t.Errorf("got %d bytes, %v", len(got), err)
				}
			})
		}
		close(other.over)
		synctest.Wait()
		if w.o.hub.Runner("job-uid").ResultOf("c2") == nil {
			t.Error("the result didn't pass")
		}
		time.Sleep(time.Minute)
		close(c.over)
		readers.Wait()
	})
}

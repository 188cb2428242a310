package reliability

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

const (
	runnerSamples = 50
	// slowestRunner and largestRunner are ceilings of the medians.
	slowestRunner = 250 * time.Millisecond
	largestRunner = 64 << 20
)

// How long a runner takes from its start to its hello, and what it has resident while it waits for a call.
func TestRunnerStart(t *testing.T) {
	requireMeasuring(t)
	hellos := make(chan time.Time, 2)
	hub := dispatch.NewHub(time.Now(), func(s *dispatch.Session) {
		select {
		case hellos <- time.Now():
		default:
		}
	})
	identity, err := dispatch.NewIdentity(time.Now())
	must(t, err)
	conf, err := identity.ServerTLS(time.Now())
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := &dispatch.Server{Hub: hub, Authenticate: identity.CheckToken, TLS: conf, Log: logr.Discard()}
	go func() { _ = server.Serve(ctx, listener) }()

	var took []time.Duration
	var resident []int
	for i := range runnerSamples {
		job := "job-" + strconv.Itoa(i)
		runner := exec.Command(filepath.Join("..", "..", "bin", "runner"))
		runner.Env = []string{
			wire.EnvEndpoints + "=" + listener.Addr().String(), wire.EnvCA + "=" + identity.CA(),
			wire.EnvToken + "=" + identity.Token("ns", job, job+"-uid"), wire.EnvNamespace + "=ns", wire.EnvCall + "=call",
			wire.EnvJob + "=" + job, wire.EnvJobUID + "=" + job + "-uid", wire.EnvPod + "=pod", wire.EnvPodUID + "=" + job, wire.EnvNode + "=node",
		}
		began := time.Now()
		must(t, runner.Start())
		select {
		case at := <-hellos:
			took = append(took, at.Sub(began))
		case <-time.After(10 * time.Second):
			t.Fatal("the runner said no hello")
		}
		resident = append(resident, residentOf(t, runner.Process.Pid))
		must(t, runner.Process.Kill())
		_ = runner.Wait()
		<-hellos // Its end is told too.
	}
	slices.Sort(took)
	slices.Sort(resident)
	t.Logf("runner, %d samples: start to hello p50 %s, p99 %s; resident p50 %.1f MiB, most %.1f MiB",
		runnerSamples, took[runnerSamples/2], took[runnerSamples-1], float64(resident[runnerSamples/2])/(1<<20), float64(resident[runnerSamples-1])/(1<<20))
	if took[runnerSamples/2] > slowestRunner {
		t.Errorf("a runner takes %s until its hello; the ceiling is %s", took[runnerSamples/2], slowestRunner)
	}
	if resident[runnerSamples/2] > largestRunner {
		t.Errorf("a runner has %d bytes resident; the ceiling is %d", resident[runnerSamples/2], largestRunner)
	}
}

func residentOf(t *testing.T, process int) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(process) + "/status")
	must(t, err)
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			must(t, err)
			return kib << 10
		}
	}
	t.Fatal("the process has no VmRSS")
	return 0
}

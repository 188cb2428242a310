package faults

import (
	"bytes"
	cryptorand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/testing/built"
	"toolcall.dev/operator/test/internal/stream"
)

const (
	// flowing is for how long calls write at least, and flowed how much of each stream has come when a fault begins.
	flowing = 20 * time.Second
	flowed  = wholeStream / 8
)

// outputMeets breaks something while calls write 64 MiB to each of their streams.
func outputMeets(t *testing.T, fault string, do func(b *bed, f *flow)) {
	t.Helper()
	b := newBed(t)
	f := b.newFlow(t, flowing)
	f.awaitBytes(t, flowed)
	do(b, f)
	f.verify(t, fault, time.Now())
}

func TestOutputOperatorKilled(t *testing.T) {
	outputMeets(t, "operator killed", func(b *bed, _ *flow) { b.killEveryOperator(t) })
}

func TestOutputOperatorKilledAgainAndAgain(t *testing.T) {
	b := newBed(t)
	random := rand.New(rand.NewPCG(seed(t), 0))
	f := b.newFlow(t, time.Duration(kills())*5*time.Second)
	f.awaitBytes(t, 1)
	for range kills() {
		pause(t, time.Second+time.Duration(random.Int64N(int64(7*time.Second))))
		b.killEveryOperator(t)
	}
	f.verify(t, fmt.Sprintf("operator killed %d times", kills()), time.Now())
}

func TestOutputLeaderKilled(t *testing.T) {
	b := newBed(t)
	b.replicas(t, 2)
	f := b.newFlow(t, flowing)
	f.awaitBytes(t, flowed)
	leader, err := b.leader(t.Context())
	must(t, err)
	kill(t, managers(leader)...)
	f.verify(t, "leader of two killed", time.Now())
}

// An update replaces each replica, one after the other.
func TestOutputRolledOut(t *testing.T) {
	b := newBed(t)
	b.replicas(t, 2)
	f := b.newFlow(t, flowing)
	f.awaitBytes(t, flowed)
	updated := make(chan struct{})
	copied := b.copyUntil(t, updated)
	b.updateOperator(t)
	close(updated)
	if err := <-copied; err != nil {
		t.Error(err)
	}
	f.verify(t, "operator updated, replica after replica", time.Now())
}

// copyUntil copies a file into the session of a flow and back, with the plugin, again and again.
func (b *bed) copyUntil(t *testing.T, over <-chan struct{}) <-chan error {
	t.Helper()
	plugin, err := built.Program("kubectl-toolcall")
	must(t, err)
	content := bytes.Repeat([]byte(cryptorand.Text()), 1<<19)
	up, down := filepath.Join(t.TempDir(), "up"), filepath.Join(t.TempDir(), "down")
	must(t, os.WriteFile(up, content, 0o600))
	round := func() error {
		for _, args := range [][]string{{up, "writes:/tmp/copy"}, {"writes:/tmp/copy", down}} {
			out, err := exec.CommandContext(t.Context(), plugin, append([]string{"cp", "-q", "-n", b.namespace}, args...)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("cp %q: %w: %s", args, err, out)
			}
		}
		if got, err := os.ReadFile(down); err != nil || !bytes.Equal(got, content) {
			return fmt.Errorf("a copy came back as %d bytes: %w", len(got), err)
		}
		return nil
	}
	copied := make(chan error, 1)
	go func() {
		for {
			err := round()
			select {
			case <-over:
				copied <- err
				return
			default:
			}
			if err != nil {
				copied <- err
				return
			}
		}
	}()
	return copied
}

func TestOutputAPIServerStopped(t *testing.T) {
	outputMeets(t, "API server stopped for 30 s", func(b *bed, _ *flow) { b.stopped(t, "kube-apiserver", 30*time.Second) })
}

func TestOutputEtcdKilled(t *testing.T) {
	outputMeets(t, "etcd killed", func(b *bed, _ *flow) { b.control(t, "kill", "etcd") })
}

func TestOutputKubeletRestarted(t *testing.T) {
	outputMeets(t, "kubelet restarted", func(b *bed, _ *flow) {
		b.control(t, "restart", "kubelet")
		b.awaitComponents(t)
	})
}

func TestOutputContainerdRestarted(t *testing.T) {
	outputMeets(t, "containerd restarted", func(b *bed, _ *flow) {
		b.control(t, "restart", "containerd")
		b.awaitComponents(t)
	})
}

func TestOutputOperatorUnreachable(t *testing.T) {
	outputMeets(t, "operator unreachable for a minute", func(b *bed, _ *flow) {
		leader, err := b.leader(t.Context())
		must(t, err)
		open := unreachable(t, managers(leader)[0])
		pause(t, time.Minute)
		open()
	})
}

// The store goes while calls write, and is back before they end.
func TestOutputStoreRestarted(t *testing.T) {
	outputMeets(t, "store away and back", func(b *bed, _ *flow) {
		t.Cleanup(func() { b.scaleStore(t, 1) })
		b.scaleStore(t, 0)
		b.scaleStore(t, 1)
	})
}

// The store is away when the calls end: they end nevertheless, and what they wrote gets there when it is back.
func TestOutputStoreAwayAtTheEnd(t *testing.T) {
	outputMeets(t, "store away until the calls had ended", func(b *bed, f *flow) {
		t.Cleanup(func() { b.scaleStore(t, 1) })
		b.scaleStore(t, 0)
		f.awaitEnded(t)
		b.scaleStore(t, 1)
	})
}

// The writer's program is one that Python takes, and writes its line where starts looks for it.
func TestTheWritersProgramRuns(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 isn't here")
	}
	source := newWriter("space", "cold", 0).Spec.Code.Source
	ledger := filepath.Join(t.TempDir(), "lines")
	source = strings.Replace(source, ledgerMount+"/lines", ledger, 1)
	source = strings.Replace(source, fmt.Sprintf("range(%d)", wholeStream/stream.BlockSize), "range(1)", 1)
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), python, "-c", source)
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil || len(stdout) != stream.BlockSize {
		t.Fatalf("%v: %d bytes; %.300q", err, len(stdout), stderr.String())
	}
	if line, err := os.ReadFile(ledger); err != nil || string(line) != "cold x\n" {
		t.Errorf("the ledger has %q: %v", line, err)
	}
	if _, err := stream.NewChecker(writtenBy("space", "cold").Reader(output.Stderr)).Write(stderr.Bytes()); err != nil {
		t.Error(err)
	}
}

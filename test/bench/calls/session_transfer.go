package calls

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/test/internal/stream"
)

const (
	// transferBlocks make a file of 100 MiB.
	transferBlocks = 100 << 20 / stream.BlockSize
	// watchPause is between two looks at the operator's memory while files are on their way.
	watchPause = 200 * time.Millisecond
)

// transferReport is what files on their way up and down cost the operator: memory of all replicas, in KiB.
type transferReport struct {
	LiveBefore float64 `json:"liveBeforeKiB"`
	LiveAfter  float64 `json:"liveAfterKiB"`
	RSSBefore  float64 `json:"rssBeforeKiB"`
	RSSMost    float64 `json:"rssMostKiB"`
}

// transferBench sends a file up into a session and a pod, and down again.
type transferBench struct {
	*sessionBench
	namespace string
	written   stream.Written
	// local is the file that is sent up.
	local string
}

// measureTransfer sends a file of 100 MiB into a session and back, in turns with kubectl cp and a bare pod that has tar.
func (b *sessionBench) measureTransfer(ctx context.Context) error {
	room, err := b.newRoom(ctx, sessionsTransfer)
	if err != nil {
		return err
	}
	sessions, err := b.openSessions(ctx, room.Namespace, sessionSpec(1), "one")
	if err != nil {
		return err
	}
	if err := b.startPod(ctx, room.Namespace, execPod, "sleep", "86400"); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "toolcall-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	x := &transferBench{sessionBench: b, namespace: room.Namespace, written: stream.Written{Seed: "file", Blocks: transferBlocks}, local: filepath.Join(folder, "up")}
	if err := x.writeLocal(); err != nil {
		return err
	}
	r := &transferReport{}
	b.report.Transfer = r
	if r.LiveBefore, r.RSSBefore, err = b.replicasLive(ctx); err != nil {
		return err
	}
	if r.RSSMost, err = b.mostResident(ctx, func() error { return x.rounds(ctx) }); err != nil {
		return err
	}
	if r.LiveAfter, _, err = b.replicasLive(ctx); err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: room.Namespace, Name: execPod}}
	if err := b.client.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
		return err
	}
	return b.closeSessions(ctx, room, sessions)
}

func (x *transferBench) writeLocal() error {
	file, err := os.Create(x.local)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.Copy(file, x.written.Reader(output.Stdout)); err != nil {
		return fmt.Errorf("write the file to send: %w", err)
	}
	return file.Close()
}

// mostResident is the largest resident memory of all replicas that was seen while something was done.
func (b *sessionBench) mostResident(ctx context.Context, do func() error) (most float64, err error) {
	done := make(chan error, 1)
	go func() { done <- do() }()
	for {
		select {
		case err := <-done:
			return most, err
		case <-time.After(watchPause):
			now, err := b.residentNow(ctx)
			if err != nil {
				return most, errors.Join(err, <-done)
			}
			most = max(most, now)
		}
	}
}

func (x *transferBench) rounds(ctx context.Context) error {
	for range x.session.transfers {
		for _, way := range []struct {
			title string
			send  func(context.Context) error
		}{{timeUp, x.up}, {timeCopyUp, x.copyUp}, {timeDown, x.down}, {timeCopyDown, x.copyDown}} {
			began := time.Now()
			if err := way.send(ctx); err != nil {
				return fmt.Errorf("%s: %w", way.title, err)
			}
			x.values[way.title] = append(x.values[way.title], time.Since(began).Seconds())
		}
	}
	return nil
}

func (x *transferBench) up(ctx context.Context) error {
	return x.execute(ctx, x.session.plugin, "cp", "-n", x.namespace, x.local, "one:/tmp/big")
}

func (x *transferBench) down(ctx context.Context) error {
	if err := x.execute(ctx, x.session.plugin, "cp", "-n", x.namespace, "one:/tmp/big", x.local+".down"); err != nil {
		return err
	}
	return x.compare(x.local + ".down")
}

func (x *transferBench) compare(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	checker := stream.NewChecker(x.written.Reader(output.Stdout))
	if _, err := io.Copy(checker, file); err != nil {
		return err
	}
	return checker.Rest()
}

func (x *transferBench) copyUp(ctx context.Context) error {
	return x.execute(ctx, x.session.kubectl, "cp", "-n", x.namespace, x.local, execPod+":/tmp/big")
}

func (x *transferBench) copyDown(ctx context.Context) error {
	if err := x.execute(ctx, x.session.kubectl, "cp", "-n", x.namespace, execPod+":/tmp/big", x.local+".copy"); err != nil {
		return err
	}
	return x.compare(x.local + ".copy")
}

func (x *transferBench) execute(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// residentNow is the resident memory of all of the operator's replicas in KiB.
func (r *run) residentNow(ctx context.Context) (kibibytes float64, err error) {
	pods, err := r.operatorPods(ctx)
	if err != nil {
		return 0, err
	}
	for _, pod := range pods {
		page, err := r.metricsOf(ctx, pod)
		if err != nil {
			return 0, err
		}
		memory, err := readGoMemory(page)
		if err != nil {
			return 0, err
		}
		kibibytes += memory.rss
	}
	return kibibytes, nil
}

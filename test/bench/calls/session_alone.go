package calls

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/test/bench/cluster"
)

const (
	// sessionRounds is how many rounds the samples of calls in a ready session are divided into.
	sessionRounds = 10
	// execsPerRound and warmPerSessionRound are how often a round has what a user would do instead.
	execsPerRound       = 6
	warmPerSessionRound = 3
	execPod             = "there"
)

// measureAlone measures one thing at a time, in rounds, so that whatever else the machine does hits all alike. The floor
// and the calls of the session take turns, one by one.
func (b *sessionBench) measureAlone(ctx context.Context) (err error) {
	room, err := b.newRoom(ctx, sessionsAlone)
	if err != nil {
		return err
	}
	sessions, err := b.openSessions(ctx, room.Namespace, sessionSpec(1), "one")
	if err != nil {
		return err
	}
	calls, err := cluster.Track(ctx, b.client, callsOf(room.Namespace, sessions), nil)
	if err != nil {
		return err
	}
	defer calls.Stop()
	stop, err := b.startFloor(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if failure := stop(); err == nil {
			err = failure
		}
	}()
	if err := b.startPod(ctx, room.Namespace, execPod, "sleep", "86400"); err != nil {
		return err
	}
	if warm := b.fixture(kindWarm); warm != nil {
		if err := warm.resize(ctx, b.pool); err != nil {
			return err
		}
	}
	for round := range sessionRounds {
		if err := b.roundAlone(ctx, calls, room.Namespace, round); err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
	}
	return b.release(ctx)
}

func (b *sessionBench) roundAlone(ctx context.Context, calls *cluster.Tracker, namespace string, round int) error {
	for i := range b.session.samples / sessionRounds {
		for _, of := range []struct {
			title   string
			tracker *cluster.Tracker
		}{{timeFloor, b.floor.Tracker}, {timeCall, calls}} {
			s, err := of.tracker.Measure(ctx, fmt.Sprintf("one-%02d-%06d", round, i))
			if err != nil {
				return err
			}
			b.values[of.title] = append(b.values[of.title], s.Seconds())
		}
	}
	if err := b.clearFloor(ctx); err != nil {
		return err
	}
	if err := b.roundOfExecs(ctx, namespace); err != nil {
		return err
	}
	if err := b.roundBeside(ctx, kindWarm, timeWarm, round, warmPerSessionRound); err != nil {
		return err
	}
	return b.roundBeside(ctx, kindJob, timeJob, round, 1)
}

// roundBeside measures what has a pod of its own, where it is among the kinds that were asked for.
func (b *sessionBench) roundBeside(ctx context.Context, kind, title string, round, times int) error {
	f := b.fixture(kind)
	for i := 0; f != nil && i < times; i++ {
		one, err := b.measureOne(ctx, f, fmt.Sprintf("beside-%02d-%02d", round, i))
		if err != nil {
			return err
		}
		b.values[title] = append(b.values[title], one.Seconds)
		if err := f.clear(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startPod starts a pod like a bare one with a command, and waits until it runs.
func (b *sessionBench) startPod(ctx context.Context, namespace, name string, command ...string) error {
	spec, err := bareSpec(cluster.NewEnvironment("bare", "bare", b.image))
	if err != nil {
		return err
	}
	spec.Containers[0].Command = command
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: *spec}
	if err := cluster.Create(ctx, b.client, pod); err != nil {
		return err
	}
	return cluster.Eventually(ctx, "pod "+name, func(ctx context.Context) (bool, error) {
		err := b.client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return podReady(&pod.Status), err
	})
}

// roundOfExecs runs true in the pod that is there: by kubectl, which has to start, and in this process.
func (b *sessionBench) roundOfExecs(ctx context.Context, namespace string) error {
	ways := map[string]func() error{
		timeKubectl: func() error {
			out, err := exec.CommandContext(ctx, b.session.kubectl, "-n", namespace, "exec", execPod, "--", "true").CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
			}
			return nil
		},
		timeWebSocket: func() error { return b.execIn(ctx, webSocket, namespace, execPod, io.Discard, "true") },
		timeSPDY:      func() error { return b.execIn(ctx, spdy, namespace, execPod, io.Discard, "true") },
	}
	for range execsPerRound {
		for _, title := range []string{timeKubectl, timeWebSocket, timeSPDY} {
			began := time.Now()
			if err := ways[title](); err != nil {
				return fmt.Errorf("%s: %w", title, err)
			}
			b.values[title] = append(b.values[title], time.Since(began).Seconds())
		}
	}
	return nil
}

// execProtocol is how a client speaks to the API server about an exec.
type execProtocol int

const (
	webSocket execProtocol = iota
	spdy
)

// execIn runs a command in a pod, as kubectl does, on a connection of its own.
func (r *run) execIn(ctx context.Context, protocol execProtocol, namespace, pod string, stdout io.Writer, command ...string) error {
	url := r.clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	var executor remotecommand.Executor
	var err error
	if protocol == spdy {
		executor, err = remotecommand.NewSPDYExecutor(r.conf, "POST", url)
	} else {
		executor, err = remotecommand.NewWebSocketExecutor(r.conf, "GET", url.String())
	}
	if err != nil {
		return fmt.Errorf("make the executor: %w", err)
	}
	var stderr bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout, Stderr: &stderr}); err != nil {
		return fmt.Errorf("run %q in pod %s: %w: %s", command, pod, err, stderr.Bytes())
	}
	return nil
}

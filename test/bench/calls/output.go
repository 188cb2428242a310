package calls

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/measure"
	"toolcall.dev/operator/test/internal/stream"
)

const (
	// rangeBytes is how much of an ended call's stream is asked for at a time; the stream has rangeBlocks blocks.
	rangeBytes  = 64 << 10
	rangeBlocks = 64
	// liveLines come with livePause between, and their way to the reader is measured.
	liveLines = 300
	livePause = 50 * time.Millisecond
	// followers of one call at the same time.
	followers = 500
	// The operator's namespace, and the label of its pods.
	operatorNamespace = "toolcall-system"
	operatorPods      = "app.kubernetes.io/name=toolcall-operator"
)

// reader reads the output of calls in a room and its session.
type reader struct {
	*part
	*speaker
	reads *stream.Client
}

// measureOutput measures reading the output of calls, beside kubectl logs of a bare pod.
func (p *part) measureOutput(ctx context.Context) error {
	reads, err := stream.NewClient(p.conf)
	if err != nil {
		return err
	}
	s, err := p.newSpeaker(ctx, "kept", v1alpha1.ExecutionPolicySpec{Code: &v1alpha1.CodePolicy{DeniedModules: []string{}}}, 16)
	if err != nil {
		return err
	}
	o := &reader{part: p, speaker: s, reads: reads}
	for _, do := range []func(context.Context) error{o.measureLive, o.measureFollowers, o.measureKept, o.measureRanges} {
		if err := do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// begin creates a call that runs Python in the background of the session, where nothing limits its time, or in a pod of its own.
func (o *reader) begin(ctx context.Context, name, source string, inSession bool) (*v1alpha1.ToolCall, error) {
	call := cluster.NewCall(o.session.Namespace, name)
	if inSession {
		call = cluster.CallOf(o.session, name)
		call.Spec.Background = true
	}
	call.Spec.Structured, call.Spec.Code = nil, &v1alpha1.CodeAction{Language: "python", Source: source}
	return call, cluster.Create(ctx, o.client, call)
}

// timedLines writes the time at which each line is written; reader and process have the same clock on one node.
func timedLines(lines int) string {
	return fmt.Sprintf("import time\nfor i in range(%d):\n    print(time.time_ns(), flush=True)\n    time.sleep(%g)\n",
		lines, livePause.Seconds())
}

// delays reads such lines, and says in seconds how long each took to come.
func delays(from io.Reader) ([]float64, error) {
	var all []float64
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		now := time.Now()
		at, err := strconv.ParseInt(strings.TrimSpace(lines.Text()), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the time of a line: %w", err)
		}
		all = append(all, now.Sub(time.Unix(0, at)).Seconds())
	}
	return all, lines.Err()
}

// measureLive has a call and a bare pod write lines at the same time, each followed by a reader.
func (o *reader) measureLive(ctx context.Context) error {
	const name, logs = "live", "line of a bare pod's log, from the write to the reader of kubectl logs -f"
	call, err := o.begin(ctx, name, timedLines(liveLines), true)
	if err != nil {
		return err
	}
	if err := o.startPod(ctx, call.Namespace, name, "python3", "-c", timedLines(liveLines)); err != nil {
		return err
	}
	var ofCall, ofPod []float64
	group, groupCtx := errgroup.WithContext(ctx)
	read := func(into *[]float64, open func() (io.ReadCloser, error)) {
		group.Go(func() error {
			body, err := open()
			if err != nil {
				return err
			}
			defer body.Close()
			seconds, err := delays(body)
			if err == nil && len(seconds) != liveLines {
				err = fmt.Errorf("%d of %d lines came", len(seconds), liveLines)
			}
			if err == nil {
				// The first lines are written before the reader is there.
				*into = seconds[len(seconds)/4:]
			}
			return err
		})
	}
	read(&ofCall, func() (io.ReadCloser, error) { return o.follow(groupCtx, call) })
	read(&ofPod, func() (io.ReadCloser, error) {
		return o.clients.CoreV1().Pods(call.Namespace).GetLogs(name, &corev1.PodLogOptions{Follow: true}).Stream(groupCtx)
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("read live output: %w", err)
	}
	o.report.Add(o.name, logs, "s", ofPod)
	o.report.Add(o.name, "line of a call's output, from the write to the reader", "s", ofCall, logs)
	return nil
}

// follow opens a follow from the start of standard output.
func (o *reader) follow(ctx context.Context, call *v1alpha1.ToolCall) (io.ReadCloser, error) {
	return o.open(ctx, call, http.StatusOK, url.Values{"follow": {"true"}})
}

func (o *reader) open(ctx context.Context, call *v1alpha1.ToolCall, code int, query url.Values, headers ...string) (io.ReadCloser, error) {
	response, err := o.reads.Get(ctx, logOf(call), query, headers...)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != code {
		defer response.Body.Close()
		said, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
		return nil, fmt.Errorf("read the output of call %s: %s: %s", call.Name, response.Status, said)
	}
	return response.Body, nil
}

func logOf(call *v1alpha1.ToolCall) stream.Log {
	return stream.Log{Namespace: call.Namespace, Name: call.Name, UID: call.UID, Stream: output.Stdout}
}

// measureRanges asks for parts of calls that have ended: of the session's from its pod, and of one without a session from the
// output store.
func (o *reader) measureRanges(ctx context.Context) error {
	var scenarios []*measure.Scenario
	for _, of := range []struct {
		title, name string
		inSession   bool
	}{
		{"64 KiB of an ended call's output, from its session", "range-session", true},
		{"64 KiB of an ended call's output, from the output store", "range-cold", false},
	} {
		written := stream.Written{Seed: of.name, Blocks: rangeBlocks}
		call, err := o.begin(ctx, of.name, written.Python(0), of.inSession)
		if err != nil {
			return err
		}
		all, err := o.readWhole(ctx, call)
		if err != nil {
			return err
		}
		scenarios = append(scenarios, &measure.Scenario{
			Name: of.title, Each: callsPerRound,
			Operate: func(ctx context.Context, _ int) error { return o.readRange(ctx, call, all) },
		})
	}
	return o.inTurns(ctx, scenarios...)
}

// readWhole waits for the end of a call, and reads all of its output.
func (o *reader) readWhole(ctx context.Context, call *v1alpha1.ToolCall) ([]byte, error) {
	err := cluster.Eventually(ctx, "the end of call "+call.Name, func(ctx context.Context) (bool, error) {
		if err := o.client.Get(ctx, client.ObjectKeyFromObject(call), call); err != nil {
			return false, err
		}
		return cluster.CallDone(call)
	})
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	err = (&stream.Follower{Client: o.reads, Log: logOf(call), To: &all}).Run(ctx)
	return all.Bytes(), err
}

func (o *reader) readRange(ctx context.Context, call *v1alpha1.ToolCall, all []byte) error {
	first := rand.IntN(len(all) - rangeBytes)
	body, err := o.open(ctx, call, http.StatusPartialContent, nil, "Range", fmt.Sprintf("bytes=%d-%d", first, first+rangeBytes-1))
	if err != nil {
		return err
	}
	defer body.Close()
	got, err := io.ReadAll(body)
	if err == nil && string(got) != string(all[first:first+rangeBytes]) {
		err = fmt.Errorf("%d other bytes came for the range from %d", len(got), first)
	}
	return err
}

// measureKept runs short calls in turns in two sessions: one whose output is kept, and one of whose nothing is but the status.
func (o *reader) measureKept(ctx context.Context) error {
	const kept, unkept = "call in a ready session, its output kept", "call in a ready session, its output not kept"
	policy := v1alpha1.ExecutionPolicySpec{Output: &v1alpha1.OutputPolicy{KeepBytesPerStream: ptr.To(int64(0))}}
	return o.inTurns(ctx, o.sessionScenario(unkept, "unkept", policy), &measure.Scenario{
		Name: kept, Against: []string{unkept}, Each: callsPerRound,
		Operate: func(ctx context.Context, n int) error { return o.run(ctx, fmt.Sprintf("kept-%06d", n), nil) },
	})
}

// measureFollowers looks at the operator's memory without and with many followers of a call that has written a line and says
// nothing more.
func (o *reader) measureFollowers(ctx context.Context) error {
	call, err := o.begin(ctx, "quiet", "import time\nprint('line', flush=True)\ntime.sleep(3600)\n", true)
	if err != nil {
		return err
	}
	before, err := o.live(ctx)
	if err != nil {
		return err
	}
	// All stay until the memory was looked at.
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	err = cluster.Spread(ctx, followers, 32, func(_ context.Context, _ int) error {
		body, err := o.follow(following, call)
		if err != nil {
			return err
		}
		_, err = io.ReadFull(body, make([]byte, len("line\n")))
		return err
	})
	if err != nil {
		return err
	}
	after, err := o.live(ctx)
	if err != nil {
		return err
	}
	each := (after - before) / 1024 / followers
	o.report.Add(o.name, fmt.Sprintf("operator, for each of %d followers", followers), "KiB of heap", []float64{each})
	patch := client.MergeFrom(call.DeepCopy())
	call.Spec.Cancel = true
	return o.client.Patch(ctx, call, patch)
}

// live is what is live in the heaps of all of the operator's replicas, in bytes: any of them may answer a reader, and passes on
// what the leader has.
func (o *reader) live(ctx context.Context) (float64, error) {
	running := metav1.ListOptions{LabelSelector: operatorPods, FieldSelector: "status.phase=Running"}
	pods, err := o.clients.CoreV1().Pods(operatorNamespace).List(ctx, running)
	if err != nil {
		return 0, fmt.Errorf("list the operator's pods: %w", err)
	}
	if len(pods.Items) == 0 {
		return 0, fmt.Errorf("no pod of the operator runs in namespace %s", operatorNamespace)
	}
	sum := 0.0
	for i := range pods.Items {
		live, err := o.liveOf(ctx, pods.Items[i].Name)
		if err != nil {
			return 0, err
		}
		sum += live
	}
	return sum, nil
}

// collections is how many garbage collections are waited for: the smallest of what they leave is least likely to hold what
// is garbage by now.
const collections = 3

// liveOf looks at one replica. The collector runs while it is asked again and again, since each answer makes garbage.
func (o *reader) liveOf(ctx context.Context, pod string) (live float64, err error) {
	seen := map[float64]bool{}
	err = cluster.Eventually(ctx, "garbage collections of the operator", func(ctx context.Context) (bool, error) {
		page, err := o.clients.CoreV1().Pods(operatorNamespace).ProxyGet("http", pod, "8080", "/metrics", nil).DoRaw(ctx)
		if err != nil {
			return false, fmt.Errorf("read the metrics of pod %s: %w", pod, err)
		}
		now, at, err := readLive(page)
		if err != nil {
			return false, err
		}
		if !seen[at] && len(seen) > 0 && (live == 0 || now < live) {
			live = now
		}
		seen[at] = true
		return len(seen) > collections, nil
	})
	return live, err
}

// readLive works out what the last collection left from where the next one begins: that is twice the live heap and once the
// stacks, where GOGC is as it is by default. at is when that collection was.
func readLive(page []byte) (bytes, at float64, err error) {
	metrics, err := measure.ReadMetrics(page)
	if err != nil {
		return 0, 0, err
	}
	next, stacks := metrics["go_memstats_next_gc_bytes"], metrics["go_memstats_stack_inuse_bytes"]
	at = metrics["go_memstats_last_gc_time_seconds"]
	if next == 0 || at == 0 {
		return 0, 0, fmt.Errorf("the metrics have no go_memstats_next_gc_bytes, or no go_memstats_last_gc_time_seconds")
	}
	return (next-stacks)/2 + stacks, at, nil
}

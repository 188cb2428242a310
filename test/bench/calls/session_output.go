package calls

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/figures"
	"toolcall.dev/operator/test/internal/stream"
)

const (
	// rangeBytes is how much of an ended call's stream is asked for at a time; the stream has rangeBlocks blocks.
	rangeBytes  = 64 << 10
	rangeBlocks = 64
	// livePause is between two lines whose way to the reader is measured.
	livePause = 50 * time.Millisecond
)

// outputReport is what reading output costs the operator.
type outputReport struct {
	Followers int `json:"followers"`
	// Memory of all replicas without and with the followers, in KiB.
	LiveBefore float64 `json:"liveBeforeKiB"`
	LiveAfter  float64 `json:"liveAfterKiB"`
	RSSBefore  float64 `json:"rssBeforeKiB"`
	RSSAfter   float64 `json:"rssAfterKiB"`
	// WritesKept and WritesUnkept are the operator's API writes per short call, where an audit log counts them.
	WritesKept   float64 `json:"writesKept,omitempty"`
	WritesUnkept float64 `json:"writesUnkept,omitempty"`
}

// PerFollower is how much more is live for each.
func (o *outputReport) PerFollower() float64 {
	return (o.LiveAfter - o.LiveBefore) / float64(o.Followers)
}

// outputBench is the part about output.
type outputBench struct {
	*sessionBench
	reads  *stream.Client
	room   *fixture
	report *outputReport
	// kept is the session whose output is kept.
	kept *v1alpha1.ToolSession
	mu   sync.Mutex
}

// measureOutput measures reading the output of calls, beside kubectl logs of a bare pod.
func (b *sessionBench) measureOutput(ctx context.Context) error {
	reads, err := stream.NewClient(b.conf)
	if err != nil {
		return err
	}
	o := &outputBench{sessionBench: b, reads: reads, report: &outputReport{}}
	if o.room, err = b.newRoomUnder(ctx, "kept", v1alpha1.ExecutionPolicySpec{Code: &v1alpha1.CodePolicy{DeniedModules: []string{}}}); err != nil {
		return err
	}
	sessions, err := b.openSessions(ctx, o.room.Namespace, sessionSpec(16), "kept")
	if err != nil {
		return err
	}
	o.kept = sessions["kept"]
	b.report.Output = o.report
	for _, part := range []figures.Part{
		{Name: "live", Measure: o.measureLive}, {Name: "followers", Measure: o.measureFollowers},
		{Name: "short calls", Measure: o.measureShort}, {Name: "ranges", Measure: o.measureRanges},
	} {
		b.say("sessions: output, %s", part.Name)
		if err := part.Measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.Name, err)
		}
	}
	return b.closeSessions(ctx, o.room, sessions)
}

// newRoomUnder is a room with a policy of its own, which goes when the room's namespace does.
func (b *sessionBench) newRoomUnder(ctx context.Context, name string, spec v1alpha1.ExecutionPolicySpec) (*fixture, error) {
	policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: b.name + "-" + name}, Spec: spec}
	if err := cluster.Create(ctx, b.client, policy); err != nil {
		return nil, err
	}
	room, err := b.newRoom(ctx, name, func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: policy.Name}
	})
	if err != nil {
		return nil, err
	}
	namespace := &corev1.Namespace{}
	if err := b.client.Get(ctx, client.ObjectKey{Name: room.Namespace}, namespace); err != nil {
		return nil, fmt.Errorf("get the namespace: %w", err)
	}
	before := policy.DeepCopy()
	policy.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: namespace.Name, UID: namespace.UID}}
	if err := b.client.Patch(ctx, policy, client.MergeFrom(before)); err != nil {
		return nil, fmt.Errorf("have the policy go with its namespace: %w", err)
	}
	return room, nil
}

// begin creates a call that runs Python in the background of the session, where nothing limits its time, or in a pod of its own.
func (o *outputBench) begin(ctx context.Context, name, source string, inSession bool) (*v1alpha1.ToolCall, error) {
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: o.room.Namespace, Name: name}, Spec: v1alpha1.ToolCallSpec{
		Code: &v1alpha1.CodeAction{Language: "python", Source: source}, EnvironmentRef: &v1alpha1.LocalReference{Name: cluster.EnvironmentName},
	}}
	if inSession {
		call.Spec.EnvironmentRef, call.Spec.Background = nil, true
		call.Spec.SessionRef = &v1alpha1.SessionReference{Name: o.kept.Name, UID: string(o.kept.UID)}
	}
	return call, cluster.Create(ctx, o.client, call)
}

// await waits for the end of a call.
func (o *outputBench) await(ctx context.Context, call *v1alpha1.ToolCall) error {
	return cluster.Eventually(ctx, "the end of call "+call.Name, func(ctx context.Context) (bool, error) {
		if err := o.client.Get(ctx, client.ObjectKeyFromObject(call), call); err != nil {
			return false, err
		}
		return o.room.Done(call)
	})
}

// timedLines writes the time at which each line is written; reader and process have the same clock on one node.
func timedLines(lines int) string {
	return fmt.Sprintf("import time\nfor i in range(%d):\n    print(time.time_ns(), flush=True)\n    time.sleep(%g)\n", lines, livePause.Seconds())
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
func (o *outputBench) measureLive(ctx context.Context) error {
	lines := max(o.session.samples, 100)
	call, err := o.begin(ctx, "live", timedLines(lines), true)
	if err != nil {
		return err
	}
	const pod = "live"
	if err := o.startPod(ctx, o.room.Namespace, pod, "python3", "-c", timedLines(lines)); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	read := func(title string, open func() (io.ReadCloser, error)) func() error {
		return func() error {
			body, err := open()
			if err != nil {
				return fmt.Errorf("%s: %w", title, err)
			}
			defer body.Close()
			seconds, err := delays(body)
			if err == nil && len(seconds) != lines {
				err = fmt.Errorf("%d of %d lines came", len(seconds), lines)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", title, err)
			}
			// The first lines are written before the reader is there.
			o.mu.Lock()
			defer o.mu.Unlock()
			o.values[title] = seconds[len(seconds)/4:]
			return nil
		}
	}
	group.Go(read(timeLive, func() (io.ReadCloser, error) { return o.follow(ctx, call) }))
	group.Go(read(timePodLogs, func() (io.ReadCloser, error) {
		return o.clients.CoreV1().Pods(o.room.Namespace).GetLogs(pod, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	}))
	return group.Wait()
}

// follow opens a follow from the start of standard output.
func (o *outputBench) follow(ctx context.Context, call *v1alpha1.ToolCall) (io.ReadCloser, error) {
	return o.open(ctx, call, http.StatusOK, url.Values{"follow": {"true"}})
}

func (o *outputBench) open(ctx context.Context, call *v1alpha1.ToolCall, code int, query url.Values, headers ...string) (io.ReadCloser, error) {
	log := stream.Log{Namespace: call.Namespace, Name: call.Name, UID: call.UID, Stream: output.Stdout}
	response, err := o.reads.Get(ctx, log, query, headers...)
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

// measureRanges asks for parts of a call that has ended: of the session's from its pod, and of one without a session from the
// output store.
func (o *outputBench) measureRanges(ctx context.Context) error {
	for _, of := range []struct {
		title, name string
		inSession   bool
	}{{timeRangePod, "range-session", true}, {timeRange, "range-cold", false}} {
		written := stream.Written{Seed: of.name, Blocks: rangeBlocks}
		call, err := o.begin(ctx, of.name, written.Python(0), of.inSession)
		if err != nil {
			return err
		}
		all, err := o.awaitWhole(ctx, call, written)
		if err != nil {
			return err
		}
		for range o.session.samples {
			if err := o.readRange(ctx, call, of.title, all); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitWhole waits for the end of a call, and until all of its output can be read.
func (o *outputBench) awaitWhole(ctx context.Context, call *v1alpha1.ToolCall, written stream.Written) (all []byte, err error) {
	if err := o.await(ctx, call); err != nil {
		return nil, err
	}
	checker := stream.NewChecker(written.Reader(output.Stdout))
	log := stream.Log{Namespace: call.Namespace, Name: call.Name, UID: call.UID, Stream: output.Stdout}
	if err := (&stream.Follower{Client: o.reads, Log: log, To: checker}).Run(ctx); err != nil {
		return nil, err
	}
	if err := checker.Rest(); err != nil {
		return nil, err
	}
	return io.ReadAll(written.Reader(output.Stdout))
}

func (o *outputBench) readRange(ctx context.Context, call *v1alpha1.ToolCall, title string, all []byte) error {
	first := rand.IntN(len(all) - rangeBytes)
	began := time.Now()
	body, err := o.open(ctx, call, http.StatusPartialContent, nil, "Range", fmt.Sprintf("bytes=%d-%d", first, first+rangeBytes-1))
	if err != nil {
		return err
	}
	defer body.Close()
	got, err := io.ReadAll(body)
	o.values[title] = append(o.values[title], time.Since(began).Seconds())
	if err == nil && string(got) != string(all[first:first+rangeBytes]) {
		err = fmt.Errorf("%d other bytes came for the range from %d", len(got), first)
	}
	return err
}

// measureFollowers looks at the operator's memory without and with many followers of a call that has written a line and says
// nothing more.
func (o *outputBench) measureFollowers(ctx context.Context) error {
	call, err := o.begin(ctx, "quiet", "import time\nprint('line', flush=True)\ntime.sleep(3600)\n", true)
	if err != nil {
		return err
	}
	r := o.report
	if r.LiveBefore, r.RSSBefore, err = o.replicasLive(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.Followers = o.session.followers
	err = cluster.Spread(ctx, r.Followers, 32, func(_ context.Context, _ int) error {
		// It stays until the end of all.
		body, err := o.follow(ctx, call)
		if err != nil {
			return err
		}
		_, err = io.ReadFull(body, make([]byte, len("line\n")))
		return err
	})
	if err != nil {
		return err
	}
	if r.LiveAfter, r.RSSAfter, err = o.replicasLive(ctx); err != nil {
		return err
	}
	before := call.DeepCopy()
	call.Spec.Cancel = true
	return o.client.Patch(ctx, call, client.MergeFrom(before))
}

// replicasLive is the memory of all of the operator's replicas: any of them may answer a reader, and passes on what the leader
// has.
func (r *run) replicasLive(ctx context.Context) (live, rss float64, err error) {
	pods, err := r.operatorPods(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, pod := range pods {
		oneLive, oneRSS, err := r.operatorLive(ctx, pod)
		if err != nil {
			return 0, 0, err
		}
		live, rss = live+oneLive, rss+oneRSS
	}
	return live, rss, nil
}

// measureShort runs short calls in turns in two sessions: one whose output is kept, and one of whose nothing is but the status.
func (o *outputBench) measureShort(ctx context.Context) error {
	room, err := o.newRoomUnder(ctx, "unkept", v1alpha1.ExecutionPolicySpec{Output: &v1alpha1.OutputPolicy{KeepBytesPerStream: ptr.To(int64(0))}})
	if err != nil {
		return err
	}
	sessions, err := o.openSessions(ctx, room.Namespace, sessionSpec(1), "unkept")
	if err != nil {
		return err
	}
	kept, err := cluster.Track(ctx, o.client, callsOf(o.room.Namespace, map[string]*v1alpha1.ToolSession{"kept": o.kept}), nil)
	if err != nil {
		return err
	}
	defer kept.Stop()
	unkept, err := cluster.Track(ctx, o.client, callsOf(room.Namespace, sessions), nil)
	if err != nil {
		return err
	}
	defer unkept.Stop()
	if err := cluster.Pause(ctx, settle); err != nil {
		return err
	}
	since := time.Now()
	for i := range writesOf {
		for _, of := range []struct {
			title, name string
			tracker     *cluster.Tracker
		}{{timeKept, "kept", kept}, {timeUnkept, "unkept", unkept}} {
			s, err := of.tracker.Measure(ctx, fmt.Sprintf("%s-%06d", of.name, i))
			if err != nil {
				return err
			}
			o.values[of.title] = append(o.values[of.title], s.Seconds())
		}
	}
	if err := o.countWrites(room.Namespace, since); err != nil {
		return err
	}
	return o.closeSessions(ctx, room, sessions)
}

// countWrites counts what the short calls of both sessions cost, where there is an audit log.
func (o *outputBench) countWrites(unkept string, since time.Time) error {
	if o.auditLog == "" {
		return nil
	}
	log := figures.AuditLog{File: o.auditLog, User: o.operatorUser(), Since: since}
	counts, err := log.Count()
	if err != nil {
		return err
	}
	for namespace, into := range map[string]*float64{o.room.Namespace: &o.report.WritesKept, unkept: &o.report.WritesUnkept} {
		if writes := counts[namespace]; writes != nil {
			*into = writes.PerCall(writesOf).Total()
		}
	}
	return nil
}

package calls

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/figures"
)

const (
	// writesOf is how many calls the operator's writes are counted for: fewer than those after which it deletes others.
	writesOf = 150
	kibi     = 1 << 10
	// runnerClients have one call each on its way while a session gets many.
	runnerClients = 8
)

// measureWrites counts what calls in a session cost the operator in writes until they have ended.
func (b *sessionBench) measureWrites(ctx context.Context) error {
	room, err := b.newRoom(ctx, sessionsWrites)
	if err != nil {
		return err
	}
	sessions, err := b.openSessions(ctx, room.Namespace, sessionSpec(1), "one")
	if err != nil {
		return err
	}
	t, err := cluster.Track(ctx, b.client, callsOf(room.Namespace, sessions), nil)
	if err != nil {
		return err
	}
	defer t.Stop()
	// What follows from the session's start is no call's.
	if err := cluster.Pause(ctx, settle); err != nil {
		return err
	}
	since := time.Now()
	err = b.observe(ctx, sessionsWrites, func() error {
		for i := range writesOf {
			if _, err := t.Measure(ctx, fmt.Sprintf("one-%06d", i)); err != nil {
				return err
			}
		}
		return cluster.Pause(ctx, time.Second)
	})
	if err != nil {
		return err
	}
	if b.report.Writes, err = b.writesOfSession(room.Namespace, since); err != nil {
		return err
	}
	return b.closeSessions(ctx, room, sessions)
}

// writesOfSession are from the audit log, where there is one, and otherwise from the operator's metrics.
func (b *sessionBench) writesOfSession(namespace string, since time.Time) (*writeReport, error) {
	const untilEnd = "until they have ended; each is deleted later, with one write, when its time is up or 200 others have ended in the session"
	if b.auditLog == "" {
		done := b.activities[sessionsWrites]
		if done == nil || done.finished == 0 {
			return nil, fmt.Errorf("count the operator's writes: its metrics say that it ended no call")
		}
		return &writeReport{
			Source: "operator metrics", Note: untilEnd + "; POST includes access reviews, and writes for others are in the figures",
			Calls: done.finished, PerCall: done.writes.PerCall(done.finished),
		}, nil
	}
	log := figures.AuditLog{File: b.auditLog, User: b.operatorUser(), Since: since}
	counts, err := log.Count()
	if err != nil {
		return nil, err
	}
	if counts[namespace] == nil {
		return nil, fmt.Errorf("count the operator's writes: the audit log has none in %s", namespace)
	}
	return &writeReport{Source: "audit log", Note: untilEnd, Calls: writesOf, PerCall: counts[namespace].PerCall(writesOf)}, nil
}

// operatorMemory is what the operator has of memory, without and with idle sessions, in KiB.
type operatorMemory struct {
	Sessions int `json:"sessions"`
	// Live is what the garbage collector has left, and the goroutines' stacks.
	LiveBefore float64 `json:"liveBeforeKiB"`
	LiveAfter  float64 `json:"liveAfterKiB"`
	RSSBefore  float64 `json:"rssBeforeKiB"`
	RSSAfter   float64 `json:"rssAfterKiB"`
}

// PerSession is how much more is live for each idle session: what is kept of its pod and Job too.
func (m *operatorMemory) PerSession() float64 {
	return (m.LiveAfter - m.LiveBefore) / float64(m.Sessions)
}

// measureOperator looks at the operator that leads, without and with sessions in which nothing runs.
func (b *sessionBench) measureOperator(ctx context.Context) error {
	room, err := b.newRoom(ctx, "idle")
	if err != nil {
		return err
	}
	leader, err := b.leader(ctx)
	if err != nil {
		return err
	}
	m := &operatorMemory{Sessions: b.session.idle}
	if m.LiveBefore, m.RSSBefore, err = b.operatorLive(ctx, leader); err != nil {
		return err
	}
	names := make([]string, b.session.idle)
	for i := range names {
		names[i] = fmt.Sprintf("idle%03d", i)
	}
	sessions, err := b.openSessions(ctx, room.Namespace, sessionSpec(1), names...)
	if err != nil {
		return err
	}
	if err := cluster.Pause(ctx, settle); err != nil {
		return err
	}
	if m.LiveAfter, m.RSSAfter, err = b.operatorLive(ctx, leader); err != nil {
		return err
	}
	b.report.Operator = m
	return b.closeSessions(ctx, room, sessions)
}

// leader is the pod of the operator that works: it is named in the lease.
func (r *run) leader(ctx context.Context) (string, error) {
	lease, err := r.clients.CoordinationV1().Leases(r.operatorNS).Get(ctx, r.operatorSA, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("find the operator that leads: %w", err)
	}
	pod, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	if pod == "" {
		return "", fmt.Errorf("no operator holds the lease %s/%s", r.operatorNS, r.operatorSA)
	}
	return pod, nil
}

// collections is how many garbage collections are waited for: the smallest of what they leave is least likely to hold what
// is garbage by now.
const collections = 3

// operatorLive is what is live in an operator, and its resident memory, in KiB. The collector runs while it is asked again
// and again, since each answer makes garbage.
func (r *run) operatorLive(ctx context.Context, pod string) (live, rss float64, err error) {
	first := -1.0
	err = cluster.Eventually(ctx, "garbage collections of the operator", func(ctx context.Context) (bool, error) {
		page, err := r.metricsOf(ctx, pod)
		if err != nil {
			return false, err
		}
		memory, err := readGoMemory(page)
		if err != nil {
			return false, err
		}
		if first < 0 {
			first = memory.collections
		}
		if memory.collections > first && (live == 0 || memory.live < live) {
			live = memory.live
		}
		rss = memory.rss
		return memory.collections >= first+collections, nil
	})
	return live, rss, err
}

// goMemory is a Go program's memory in KiB.
type goMemory struct{ live, rss, collections float64 }

// readGoMemory works out what the last collection left from where the next one begins: that is twice the live heap and once
// the stacks, where GOGC is as it is by default.
func readGoMemory(page []byte) (goMemory, error) {
	metrics, err := figures.ReadMetrics(bytes.NewReader(page))
	if err != nil {
		return goMemory{}, err
	}
	next, stacks := figures.Sum(metrics, "go_memstats_next_gc_bytes"), figures.Sum(metrics, "go_memstats_stack_inuse_bytes")
	last := figures.Sum(metrics, "go_memstats_last_gc_time_seconds")
	if next == 0 || last == 0 {
		return goMemory{}, fmt.Errorf("the metrics have no go_memstats_next_gc_bytes, or no go_memstats_last_gc_time_seconds")
	}
	return goMemory{
		live: ((next-stacks)/2 + stacks) / kibi, rss: figures.Sum(metrics, "process_resident_memory_bytes") / kibi, collections: last,
	}, nil
}

// runnerMemory is a session's runner without and after its calls, in KiB.
type runnerMemory struct {
	Calls  int     `json:"calls"`
	Before float64 `json:"rssBeforeKiB"`
	After  float64 `json:"rssAfterKiB"`
	// Rate is of that one session.
	Rate float64 `json:"callsPerSecond"`
}

// measureRunner gives one session many calls, and looks at its runner before and after.
func (b *sessionBench) measureRunner(ctx context.Context) error {
	room, err := b.newRoom(ctx, sessionsRunner)
	if err != nil {
		return err
	}
	sessions, err := b.openSessions(ctx, room.Namespace, sessionSpec(runnerClients), "one")
	if err != nil {
		return err
	}
	pod := sessions["one"].Status.Pod
	m := &runnerMemory{Calls: b.session.calls}
	if m.Before, err = b.residentOf(ctx, room.Namespace, pod); err != nil {
		return err
	}
	t, err := cluster.Track(ctx, b.client, callsOf(room.Namespace, sessions), nil)
	if err != nil {
		return err
	}
	defer t.Stop()
	began := time.Now()
	err = cluster.Spread(ctx, m.Calls, runnerClients, func(ctx context.Context, i int) error {
		_, err := t.Measure(ctx, fmt.Sprintf("one-%06d", i))
		return err
	})
	if err != nil {
		return err
	}
	m.Rate = float64(m.Calls) / time.Since(began).Seconds()
	if err := cluster.Pause(ctx, settle); err != nil {
		return err
	}
	if m.After, err = b.residentOf(ctx, room.Namespace, pod); err != nil {
		return err
	}
	b.report.Runner = m
	return b.closeSessions(ctx, room, sessions)
}

// residentOf is the resident memory, in KiB, of the first process of a pod.
func (b *sessionBench) residentOf(ctx context.Context, namespace, pod string) (float64, error) {
	var status bytes.Buffer
	if err := b.execIn(ctx, webSocket, namespace, pod, &status, "cat", "/proc/1/status"); err != nil {
		return 0, err
	}
	return readResident(status.Bytes())
}

var residentLine = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

func readResident(status []byte) (float64, error) {
	match := residentLine.FindSubmatch(status)
	if match == nil {
		return 0, fmt.Errorf("the status of the process has no VmRSS: %s", status)
	}
	return strconv.ParseFloat(string(match[1]), 64)
}

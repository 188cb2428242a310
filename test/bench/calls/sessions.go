package calls

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/figures"
	"toolcall.dev/operator/test/bench/floor"
)

// Parts of what is measured of sessions, in order.
const (
	sessionsAlone     = "alone"
	sessionsFiles     = "files"
	sessionsOutput    = "output"
	sessionsTransfer  = "transfer"
	sessionsSustained = "sustained"
	sessionsWrites    = "writes"
	sessionsStarts    = "starts"
	sessionsResume    = "resume"
	sessionsOperator  = "operator"
	sessionsRunner    = "runner"
)

var allSessionParts = []string{
	sessionsAlone, sessionsFiles, sessionsOutput, sessionsTransfer, sessionsSustained, sessionsWrites, sessionsStarts, sessionsResume, sessionsOperator, sessionsRunner,
}

// sessionOptions are the flags about sessions.
type sessionOptions struct {
	parts    []string
	samples  int
	sessions int
	loops    int
	seconds  float64
	warmUp   float64
	starts   int
	resumes  int
	idle     int
	calls    int
	size     string
	kubectl  string
	plugin   string
	// followers of one call at the same time, and rounds of files up and down.
	followers int
	transfers int
}

func (o *sessionOptions) addFlags(fs *flag.FlagSet) {
	*o = sessionOptions{
		parts: allSessionParts, samples: 300, sessions: 16, loops: 2, seconds: 20, warmUp: 90, starts: 20, resumes: 5, idle: 30, calls: 10000,
		followers: 500, transfers: 5,
	}
	figures.Add(fs, &o.parts, "session-parts", figures.List(figures.OneOf(allSessionParts)), "`parts` of sessions to measure, commas between")
	figures.Add(fs, &o.samples, "session-n", figures.Between(sessionRounds, 100000), "calls in a ready session, one at a time, and as many of the floor")
	figures.Add(fs, &o.sessions, "sessions", figures.Between(1, 99), "sessions under sustained load")
	figures.Add(fs, &o.loops, "session-loops", figures.Between(1, 16), "clients of each of them, with one call on its way at a time; the session runs as many at once")
	figures.Add(fs, &o.seconds, "session-seconds", figures.Between(1.0, 3600), "seconds for which the sustained load is measured, and the floor's beside it")
	figures.Add(fs, &o.warmUp, "session-warm-up", figures.Between(0.0, 3600), "seconds after which the sustained load is measured although the operator doesn't delete finished calls yet")
	figures.Add(fs, &o.starts, "session-starts", figures.Between(1, 1000), "sessions that take a waiting pod; a quarter as many go cold")
	figures.Add(fs, &o.resumes, "session-resumes", figures.Between(1, 1000), "calls that wake a suspended session, each beside a cold call")
	figures.Add(fs, &o.idle, "idle-sessions", figures.Between(1, 200), "idle sessions with which the operator's memory is looked at; each has a pod")
	figures.Add(fs, &o.calls, "session-calls", figures.Between(1, 90000), "calls of one session, after which its runner's memory is looked at")
	figures.Add(fs, &o.followers, "followers", figures.Between(1, 1000), "followers of one call at the same time, with which the operator's memory is looked at")
	figures.Add(fs, &o.transfers, "transfers", figures.Between(1, 100), "how often a file of 100 MiB is sent up and down")
	fs.StringVar(&o.size, "workspace", "64Mi", "size of the claim of the session that is suspended, in the cluster's default StorageClass; empty for no such session")
	fs.StringVar(&o.kubectl, "kubectl", "kubectl", "the kubectl whose exec and cp are measured")
	fs.StringVar(&o.plugin, "plugin", "bin/kubectl-toolcall", "the plugin whose cp is measured")
}

// sessionBench is a run's part about sessions.
type sessionBench struct {
	*run
	floor  *floor.Variant
	report *sessionReport
	// values are times in seconds, by what they are of.
	values map[string][]float64
}

// measureSessions measures calls that share a pod beside the floor, a bare Job, a warm call, and an exec into a pod that is
// there already. A part that fails doesn't cost the figures of the others: the verdict says so.
func (r *run) measureSessions(ctx context.Context) (err error) {
	b := &sessionBench{run: r, report: &sessionReport{}, values: map[string][]float64{}}
	r.report.Sessions = b.report
	defer func() { b.report.summarize(b.values) }()
	if b.measures(sessionsAlone) || b.measures(sessionsFiles) || b.measures(sessionsSustained) {
		defer func() { err = errors.Join(err, b.removeFloor()) }()
		if err := b.installFloor(ctx); err != nil {
			return fmt.Errorf("install the floor's kind: %w", err)
		}
	}
	for _, part := range []figures.Part{
		{Name: sessionsAlone, Measure: b.measureAlone}, {Name: sessionsFiles, Measure: b.measureFiles},
		{Name: sessionsOutput, Measure: b.measureOutput}, {Name: sessionsTransfer, Measure: b.measureTransfer},
		{Name: sessionsSustained, Measure: b.measureSustained},
		{Name: sessionsWrites, Measure: b.measureWrites}, {Name: sessionsStarts, Measure: b.measureStarts},
		{Name: sessionsResume, Measure: b.measureResumes}, {Name: sessionsOperator, Measure: b.measureOperator},
		{Name: sessionsRunner, Measure: b.measureRunner},
	} {
		if !b.measures(part.Name) {
			continue
		}
		b.say("sessions: %s", part.Name)
		if err := part.Measure(ctx); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			b.report.fail(part.Name, err)
			b.say("sessions: %s: %v", part.Name, err)
		}
	}
	return nil
}

func (b *sessionBench) measures(part string) bool { return slices.Contains(b.session.parts, part) }

const (
	floorRoom = "session-floor"
	// settle lets the API server publish a new kind, and a runner or an operator come to rest.
	settle = 5 * time.Second
)

// installFloor has the kind once more, in a group that no operator knows.
func (b *sessionBench) installFloor(ctx context.Context) error {
	room := &fixture{kind: floorRoom, client: b.client, Subject: cluster.Calls(b.name + "-" + floorRoom)}
	b.fixtures = append(b.fixtures, room)
	if err := room.create(ctx); err != nil {
		return err
	}
	b.floor = &floor.Variant{
		Title: "floor", Group: b.name + "." + v1alpha1.GroupVersion.Group, Folder: ".", Policies: true, Prefix: b.name + "-",
	}
	if err := b.floor.Install(ctx, b.client, b.conf, room.Namespace); err != nil {
		return err
	}
	return cluster.Pause(ctx, settle)
}

func (b *sessionBench) removeFloor() error {
	if b.floor == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	return b.floor.Uninstall(ctx, b.client)
}

// startFloor has calls of the floor answered and tracked until stop is called.
func (b *sessionBench) startFloor(ctx context.Context) (stop func() error, err error) {
	return b.floor.Start(ctx, b.name+"-"+floorRoom)
}

func (b *sessionBench) clearFloor(ctx context.Context) error {
	if err := b.floor.Clear(ctx, b.name+"-"+floorRoom); err != nil {
		return err
	}
	return cluster.Pause(ctx, time.Second)
}

// newRoom makes a namespace with an environment, in which nothing else is measured.
func (b *sessionBench) newRoom(ctx context.Context, name string, change ...func(*v1alpha1.ExecutionEnvironment)) (*fixture, error) {
	namespace := b.name + "-session-" + name
	room := &fixture{
		kind: name, client: b.client, Subject: cluster.Calls(namespace), environment: cluster.NewEnvironment(namespace, b.name, b.image),
	}
	for _, c := range change {
		c(room.environment)
	}
	b.fixtures = append(b.fixtures, room)
	return room, room.create(ctx)
}

// sessionSpec is that of a session that nothing ends but the benchmark.
func sessionSpec(concurrent int) v1alpha1.ToolSessionSpec {
	return v1alpha1.ToolSessionSpec{
		EnvironmentRef: &v1alpha1.LocalReference{Name: cluster.EnvironmentName}, IdleTimeoutSeconds: ptr.To(int32(0)),
		MaxConcurrentCalls: ptr.To(int32(concurrent)), MaxCalls: ptr.To(int32(100000)),
	}
}

// withWorkspace has a session suspended as soon as it is idle.
func withWorkspace(spec v1alpha1.ToolSessionSpec, size resource.Quantity) v1alpha1.ToolSessionSpec {
	spec.Workspace, spec.IdleTimeoutSeconds = &v1alpha1.SessionWorkspace{Size: size}, ptr.To(int32(1))
	return spec
}

// sessionsIn are sessions as something to be measured, from their creation until they take calls.
func sessionsIn(namespace string, spec v1alpha1.ToolSessionSpec) cluster.Subject {
	return cluster.Subject{
		Namespace: namespace, List: &v1alpha1.ToolSessionList{}, Done: sessionReady,
		New: func(at metav1.ObjectMeta) client.Object {
			return &v1alpha1.ToolSession{ObjectMeta: at, Spec: *spec.DeepCopy()}
		},
	}
}

func sessionReady(o client.Object) (bool, error) {
	s := o.(*v1alpha1.ToolSession).Status
	if s.Phase == v1alpha1.SessionEnded {
		return false, fmt.Errorf("the session ended %s: %s", s.Reason, s.Message)
	}
	return s.Phase == v1alpha1.SessionReady && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady), nil
}

// openSessions creates sessions and waits until all take calls.
func (b *sessionBench) openSessions(ctx context.Context, namespace string, spec v1alpha1.ToolSessionSpec, names ...string) (map[string]*v1alpha1.ToolSession, error) {
	t, err := cluster.Track(ctx, b.client, sessionsIn(namespace, spec), nil)
	if err != nil {
		return nil, err
	}
	defer t.Stop()
	ready := make([]*v1alpha1.ToolSession, len(names))
	err = cluster.Spread(ctx, len(names), len(names), func(ctx context.Context, i int) error {
		s, err := t.Measure(ctx, names[i])
		if err == nil {
			ready[i] = s.Object.(*v1alpha1.ToolSession)
		}
		return err
	})
	sessions := map[string]*v1alpha1.ToolSession{}
	for _, s := range ready {
		if s != nil {
			sessions[s.Name] = s
		}
	}
	return sessions, err
}

// callsOf are calls of sessions in a namespace: a call's name begins with its session's, and a dash.
func callsOf(namespace string, sessions map[string]*v1alpha1.ToolSession) cluster.Subject {
	calls := cluster.Calls(namespace)
	calls.New = func(at metav1.ObjectMeta) client.Object {
		call := cluster.NewCall(at).(*v1alpha1.ToolCall)
		name, _, _ := strings.Cut(at.Name, "-")
		call.Spec.EnvironmentRef = nil
		call.Spec.SessionRef = &v1alpha1.SessionReference{Name: name}
		if session := sessions[name]; session != nil {
			call.Spec.SessionRef.UID = string(session.UID)
		}
		return call
	}
	return calls
}

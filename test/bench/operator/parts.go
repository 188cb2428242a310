package operator

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/measure"
)

const (
	// sessions are as many as run calls at the same time; twice as many calls are on their way.
	sessions = 16
	// clearPause lets the API server come to rest after a deletion of many.
	clearPause = 200 * time.Millisecond
)

// caller makes calls of one kind on a site.
type caller struct {
	*site
	// what the calls are, and the callers of the same build that they are compared with.
	what    string
	against []string
	// call is one of that name, and tracker sees its end.
	call    func(name string) *v1alpha1.ToolCall
	tracker *cluster.Tracker
	// run has a call run.
	run func(ctx context.Context, name string) error
	// prepare makes what the calls need, and clear makes room after many.
	prepare, clear func(ctx context.Context) error
}

// newCaller makes calls of the shortest command, once it has a tracker.
func (s *site) newCaller(what string, against ...string) *caller {
	c := &caller{site: s, what: what, against: against, prepare: s.makeNamespace}
	c.call = func(name string) *v1alpha1.ToolCall { return cluster.NewCall(namespace, name) }
	c.run = func(ctx context.Context, name string) error {
		_, err := c.tracker.Run(ctx, c.call(name))
		return err
	}
	return c
}

// newPodCaller makes calls that take waiting pods, or have pods of their own where none wait.
func (s *site) newPodCaller(what string, pool int, against ...string) *caller {
	c := s.newCaller(what, against...)
	c.prepare = func(ctx context.Context) (err error) {
		if err := s.serve(ctx, pool); err != nil {
			return err
		}
		if c.tracker, err = cluster.TrackCalls(ctx, s.Client, namespace); err != nil {
			return err
		}
		s.stops = append(s.stops, c.tracker.Stop)
		return nil
	}
	c.clear = func(ctx context.Context) error { return cluster.AwaitEnvironment(ctx, s.Client, namespace, pool) }
	return c
}

// scenario is one of the caller's, with a name that says how many calls are on their way.
func (b *bench) scenario(c *caller, way string) *measure.Scenario {
	var against []string
	for _, other := range c.against {
		against = append(against, other+way)
	}
	return &measure.Scenario{Name: c.name(c.what + way), Against: b.against(c.build, c.what+way, against...), Prepare: c.prepare}
}

// alone is a scenario of calls one at a time.
func (b *bench) alone(c *caller) *measure.Scenario {
	s := b.scenario(c, ", one at a time")
	s.Each = inTurn(b.calls / 10)
	s.Operate = func(ctx context.Context, n int) error { return c.run(ctx, fmt.Sprintf("alone-%06d", n)) }
	return s
}

// atOnce is a scenario of many calls, of which the next one is created when one has ended.
func (b *bench) atOnce(c *caller, inFlight int) *measure.Scenario {
	s := b.scenario(c, fmt.Sprintf(", %d at once", inFlight))
	s.Calls, s.Clear = inTurn(b.calls), c.clear
	if c.process != nil {
		s.Settle = settleTime
	}
	s.Spent = func() (measure.Counts, error) { return c.Spent(namespace) }
	s.Operate = func(ctx context.Context, n int) error {
		return cluster.Spread(ctx, s.Calls, inFlight, func(ctx context.Context, i int) error {
			return c.run(ctx, fmt.Sprintf("turn-%d-%06d", n, i))
		})
	}
	return s
}

// both are scenarios of calls one at a time, and of many at once.
func (b *bench) both(c *caller) []*measure.Scenario {
	many := b.atOnce(c, 2*sessions)
	// That was done for the first.
	many.Prepare = nil
	return []*measure.Scenario{b.alone(c), many}
}

// measureCold measures calls with pods of their own, beside a program that does nothing but the same writes.
func (b *bench) measureCold(ctx context.Context) error {
	const writes = "the writes of cold calls, without an operator"
	var scenarios []*measure.Scenario
	for _, o := range b.builds() {
		bare, err := b.newSite(ctx, o)
		if err != nil {
			return err
		}
		s, err := b.newOperatorSite(ctx, o, 0)
		if err != nil {
			return err
		}
		cold, again, p := s.newPodCaller("cold calls", 0, writes), bare.newCaller(writes), &pattern{}
		serve := cold.prepare
		cold.prepare = func(ctx context.Context) error {
			if err := serve(ctx); err != nil {
				return err
			}
			if err := cold.run(ctx, "pattern"); err != nil {
				return err
			}
			return p.take(ctx, s.Client, "pattern")
		}
		again.run = func(ctx context.Context, name string) error { return p.write(ctx, bare.Client, name) }
		scenarios = append(scenarios, b.atOnce(again, inFlight), b.atOnce(cold, inFlight))
	}
	return b.report.InTurns(ctx, b.part, rounds, scenarios...)
}

// measureWarm measures calls that take waiting pods.
func (b *bench) measureWarm(ctx context.Context) error {
	var scenarios []*measure.Scenario
	for _, o := range b.builds() {
		s, err := b.newOperatorSite(ctx, o, 0)
		if err != nil {
			return err
		}
		scenarios = append(scenarios, b.atOnce(s.newPodCaller("warm calls", warmPool), inFlight))
	}
	return b.report.InTurns(ctx, b.part, rounds, scenarios...)
}

// newFloor is a site without an operator, whose calls another client answers.
func (b *bench) newFloor(ctx context.Context, o build) (*caller, error) {
	s, err := b.newSite(ctx, o)
	if err != nil {
		return nil, err
	}
	other, err := cluster.Connect(s.Conf)
	if err != nil {
		return nil, err
	}
	c := s.newCaller("floor")
	c.prepare = func(ctx context.Context) error {
		if err := s.makeNamespace(ctx); err != nil {
			return err
		}
		f, err := cluster.StartFloor(ctx, s.Client, other, namespace)
		if err != nil {
			return err
		}
		c.tracker, s.stops = f.Tracker, append(s.stops, f.Stop)
		// The first calls find the API server's caches empty.
		return cluster.Spread(ctx, 2*sessions, sessions, func(ctx context.Context, i int) error {
			return c.run(ctx, fmt.Sprintf("first-%06d", i))
		})
	}
	// The API server pays for each object that it has.
	c.clear = func(ctx context.Context) error {
		if err := s.Client.DeleteAllOf(ctx, &v1alpha1.ToolCall{}, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("delete the calls of the floor: %w", err)
		}
		return measure.Pause(ctx, clearPause)
	}
	return c, nil
}

// measureFloor measures what the API server takes for a call that costs as little as any can.
func (b *bench) measureFloor(ctx context.Context) error {
	var scenarios []*measure.Scenario
	for _, o := range b.builds() {
		floor, err := b.newFloor(ctx, o)
		if err != nil {
			return err
		}
		scenarios = append(scenarios, b.both(floor)...)
	}
	return b.report.InTurns(ctx, b.part, rounds, scenarios...)
}

// measureSessions measures calls of sessions whose commands take no time, beside the floor, and the operator's memory for
// idle sessions.
func (b *bench) measureSessions(ctx context.Context) error {
	var scenarios []*measure.Scenario
	var sites []*site
	for _, o := range b.builds() {
		floor, err := b.newFloor(ctx, o)
		if err != nil {
			return err
		}
		s, err := b.newOperatorSite(ctx, o, 0)
		if err != nil {
			return err
		}
		sites = append(sites, s)
		scenarios = append(append(scenarios, b.both(floor)...), b.both(s.newSessionCaller())...)
	}
	if err := b.report.InTurns(ctx, b.part, rounds, scenarios...); err != nil {
		return err
	}
	for _, s := range sites {
		if err := b.addIdle(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// newSessionCaller makes calls of many sessions in turns.
func (s *site) newSessionCaller() *caller {
	c := s.newPodCaller("session calls", 0, "floor")
	var open [sessions]*v1alpha1.ToolSession
	serve := c.prepare
	c.prepare = func(ctx context.Context) error {
		if err := serve(ctx); err != nil {
			return err
		}
		return cluster.Spread(ctx, sessions, sessions, func(ctx context.Context, i int) error {
			open[i] = cluster.NewSession(namespace, fmt.Sprint("session-", i), 2)
			return cluster.Open(ctx, s.Client, open[i])
		})
	}
	var made atomic.Int64
	c.call = func(name string) *v1alpha1.ToolCall { return cluster.CallOf(open[made.Add(1)%sessions], name) }
	return c
}

// addIdle reports by how much the operator's heap grows for each idle session.
func (b *bench) addIdle(ctx context.Context, s *site) error {
	before, err := s.process.Memory(ctx)
	if err != nil {
		return err
	}
	err = cluster.Spread(ctx, idleSessions, sessions, func(ctx context.Context, i int) error {
		return cluster.Open(ctx, s.Client, cluster.NewSession(namespace, fmt.Sprint("idle-", i), 1))
	})
	if err != nil {
		return err
	}
	if err := measure.Pause(ctx, rest); err != nil {
		return err
	}
	after, err := s.process.Memory(ctx)
	if err != nil {
		return err
	}
	const what = "operator, for each idle session"
	each := 1024 * (after.Heap - before.Heap) / float64(idleSessions)
	b.report.Add(b.part, s.name(what), "KiB of heap", []float64{each}, b.against(s.build, what)...)
	return nil
}

// measureFinished compares operators with and without many finished calls: how new calls fare, and memory.
func (b *bench) measureFinished(ctx context.Context) error {
	newCalls := func(finished int) string { return fmt.Sprintf("new calls beside %d finished ones", finished) }
	memory := func(finished int) string { return fmt.Sprintf("operator with %d finished calls", finished) }
	var scenarios []*measure.Scenario
	var sites []*site
	counts := []int{0, manyFinished}
	for _, o := range b.builds() {
		for _, finished := range counts {
			s, err := b.newOperatorSite(ctx, o, finished)
			if err != nil {
				return err
			}
			sites = append(sites, s)
			scenarios = append(scenarios, b.alone(s.newPodCaller(newCalls(finished), finishedPool, newCalls(0))))
		}
	}
	if err := b.report.InTurns(ctx, b.part, rounds, scenarios...); err != nil {
		return err
	}
	if err := measure.Pause(ctx, rest); err != nil {
		return err
	}
	for i, s := range sites {
		if err := b.addMemory(ctx, s, memory(counts[i%len(counts)]), memory(0)); err != nil {
			return err
		}
	}
	return nil
}

// makeNamespace makes the namespace of a site without an operator.
func (s *site) makeNamespace(ctx context.Context) error {
	return cluster.Create(ctx, s.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
}

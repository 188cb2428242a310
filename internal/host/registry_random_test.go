package host

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"toolcall.dev/operator/internal/dispatch"
)

// runners is a hub whose connections a test makes and breaks at will, with sessions that were real ones.
type runners map[string]*dispatch.Runner

func (r runners) Runner(jobUID string) *dispatch.Runner { return r[jobUID] }

// sessionsOf are, for one Job: two connections of one process, one of another process, and one with a call.
func sessionsOf(t *testing.T, o *operator, job string) []*dispatch.Runner {
	t.Helper()
	var list []*dispatch.Runner
	first := o.process(t, job)
	for range 2 {
		list = append(list, first.connect(t))
		first.disconnect(t)
	}
	other := o.process(t, job)
	list = append(list, other.connect(t))
	other.disconnect(t)
	busy := o.process(t, job)
	list = append(list, busy.connectForCall(t, "elsewhere"))
	busy.disconnect(t)
	return list
}

// model is what the registry has to amount to, written as plainly as can be.
type model struct {
	connected runners
	// offers are the Jobs that calls may claim, the oldest offer first.
	offers []offer
	claims map[string]claim
}

func (m *model) idle(job string) bool {
	return m.connected[job] != nil && m.connected[job].IsWaiting()
}

func (m *model) claimedJob(job string) bool {
	for _, c := range m.claims {
		if c.jobUID == job {
			return true
		}
	}
	return false
}

func (m *model) busy(job string) bool {
	s := m.connected[job]
	return m.claimedJob(job) || s != nil && !s.IsWaiting()
}

func (m *model) withdraw(job string) {
	m.offers = slices.DeleteFunc(m.offers, func(o offer) bool { return o.jobUID == job })
}

func (m *model) offer(job, template string) {
	known := slices.ContainsFunc(m.offers, func(o offer) bool { return o.jobUID == job })
	if !known && m.idle(job) && !m.claimedJob(job) {
		m.offers = append(m.offers, offer{job, template})
	}
}

func (m *model) claimed(call string) *dispatch.Runner {
	c, ok := m.claims[call]
	if !ok {
		return nil
	}
	if s := m.connected[c.jobUID]; s != nil && s.KeyHash() == c.keyHash {
		return s
	}
	delete(m.claims, call)
	return nil
}

func (m *model) claim(template, call string) *dispatch.Runner {
	if s := m.claimed(call); s != nil {
		if m.claims[call].template == template {
			return s
		}
		delete(m.claims, call)
	}
	for _, o := range slices.Clone(m.offers) {
		if o.template != template {
			continue
		}
		m.withdraw(o.jobUID)
		if m.idle(o.jobUID) {
			s := m.connected[o.jobUID]
			m.claims[call] = claim{Claimant{NamespacedName: named(call)}, o.jobUID, s.KeyHash(), template}
			return s
		}
	}
	return nil
}

// Whatever happens in whatever order: a runner is never claimed by two calls, a claim is stable while its process is
// connected, the oldest offer goes first, and what was released and withdrawn leaves nothing behind.
func TestClaimsHoldInEveryOrderOfEvents(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	jobs := []string{"a-uid", "b-uid", "c-uid"}
	sessions := map[string][]*dispatch.Runner{}
	for _, job := range []string{"a", "b", "c"} {
		sessions[job+"-uid"] = sessionsOf(t, o, job)
	}
	for seed := range uint64(300) {
		m := &model{connected: runners{}, claims: map[string]claim{}}
		r := NewRegistry(m.connected)
		random := rand.New(rand.NewPCG(seed, 7))
		for step := range 200 {
			at := fmt.Sprintf("seed %d, step %d", seed, step)
			randomStep(t, at, random, r, m, jobs, sessions)
			checkAgainst(t, at, r, m, jobs)
		}
		for call := range calls {
			r.Release(fmt.Sprint("call-", call))
		}
		for _, job := range jobs {
			delete(m.connected, job)
			r.Withdraw(job)
		}
		if len(r.claims)+len(r.offers) != 0 {
			t.Fatalf("seed %d: left behind: %v, %v", seed, r.claims, r.offers)
		}
	}
}

const calls = 4

func randomStep(t *testing.T, at string, random *rand.Rand, r *Registry, m *model, jobs []string, sessions map[string][]*dispatch.Runner) {
	t.Helper()
	job, call := jobs[random.IntN(len(jobs))], fmt.Sprint("call-", random.IntN(calls))
	template := []string{"one", "two"}[random.IntN(2)]
	switch random.IntN(8) {
	case 0:
		delete(m.connected, job)
	case 1, 2:
		m.connected[job] = sessions[job][random.IntN(len(sessions[job]))]
	case 3, 4:
		r.Offer(job, template)
		m.offer(job, template)
	case 5:
		before := m.claimed(call)
		if before != nil && m.claims[call].template != template {
			before = nil
		}
		got, want := claimFor(r, template, call), m.claim(template, call)
		if got != want || before != nil && got != before {
			t.Fatalf("%s: %s claims %s of %s, not %s; before it had %s", at, call, name(got), template, name(want), name(before))
		}
	case 6:
		r.Release(call)
		delete(m.claims, call)
	default:
		busy := m.busy(job)
		if r.Withdraw(job) == busy {
			t.Fatalf("%s: %s is busy: %t, and withdrawn otherwise", at, job, busy)
		}
		if !busy {
			m.withdraw(job)
		}
	}
}

func checkAgainst(t *testing.T, at string, r *Registry, m *model, jobs []string) {
	t.Helper()
	holders := map[*dispatch.Runner]string{}
	for i := range calls {
		call := fmt.Sprint("call-", i)
		got, want := r.claimedBy(call), m.claimed(call)
		if got != want {
			t.Fatalf("%s: %s has %s, not %s", at, call, name(got), name(want))
		}
		if got == nil {
			continue
		}
		if holders[got] != "" {
			t.Fatalf("%s: %s is claimed by %s and %s", at, name(got), holders[got], call)
		}
		holders[got] = call
	}
	waiting := map[string]int{}
	for _, o := range m.offers {
		if m.idle(o.jobUID) {
			waiting[o.template]++
		}
	}
	if one, two := r.Waiting("one"), r.Waiting("two"); one != waiting["one"] || two != waiting["two"] {
		t.Fatalf("%s: %d and %d wait, not %v", at, one, two, waiting)
	}
	for _, job := range jobs {
		offered := m.idle(job) && slices.ContainsFunc(m.offers, func(o offer) bool { return o.jobUID == job })
		if r.IsOffered(job) != offered || r.IsBusy(job) != m.busy(job) {
			t.Fatalf("%s: %s is offered: %t, busy: %t", at, job, r.IsOffered(job), r.IsBusy(job))
		}
	}
}

func name(s *dispatch.Runner) string {
	if s == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s with key %.6s", s.Hello().Job, s.KeyHash())
}

// Many calls that claim at the same time get different runners, each at most one.
func TestCallsThatClaimAtTheSameTimeGetDifferentRunners(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	const hosts, claimers = 8, 40
	for i := range hosts {
		job := fmt.Sprint("job-", i)
		o.connectRunner(t, job)
		r.Offer(job+"-uid", "t")
	}
	got := make([]*dispatch.Runner, claimers)
	var all sync.WaitGroup
	for i := range claimers {
		all.Go(func() {
			call := fmt.Sprint("call-", i)
			got[i] = claimFor(r, "t", call)
			if again := claimFor(r, "t", call); got[i] != nil && again != got[i] {
				t.Errorf("%s has %s, then %s", call, name(got[i]), name(again))
			}
		})
	}
	all.Wait()
	holders := map[*dispatch.Runner]int{}
	for _, s := range got {
		holders[s]++
	}
	given := claimers - holders[nil]
	delete(holders, nil)
	if given != hosts || len(holders) != hosts {
		t.Errorf("%d claims on %d of %d runners", given, len(holders), hosts)
	}
}

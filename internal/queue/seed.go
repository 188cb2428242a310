package queue

import (
	"context"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is what the API says about the calls of an environment.
type Snapshot struct {
	// Running are the calls that were admitted and have not ended.
	Running []Entry
	// Waiting are the calls that were told to wait. They keep their order, whichever of them asks first.
	Waiting []Entry
	// LastAdmitted is when a call of a requester was last admitted, running or ended. A requester without an entry
	// may go once before others that have waited longer.
	LastAdmitted map[string]time.Time
}

// Seed makes the calls known that an earlier process admitted or queued, once for each environment; afterwards it
// returns at once. The read holds no lock. Callers that ask for the same environment meanwhile share the read and its
// error; a later call of Seed reads again after an error.
//
// Release may run during the read: what it released isn't taken from the snapshot. A snapshot may be older than a
// Release that ran before, as long as Release runs again when the newer state arrives.
func (q *Queues) Seed(ctx context.Context, name types.NamespacedName, read func(context.Context) (Snapshot, error)) error {
	q.mu.Lock()
	if q.environment(name).seeded {
		q.mu.Unlock()
		return nil
	}
	s, shared := q.seeding[name]
	if !shared {
		s = newSeeding()
		q.seeding[name] = s
	}
	q.mu.Unlock()
	if shared {
		return s.wait(ctx)
	}
	return runSeeding(ctx, s, read, func(snapshot Snapshot) {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.seeding, name)
		if s.err == nil {
			q.apply(q.environment(name), snapshot, s.released)
		}
	})
}

// apply adds the snapshot's calls to an environment. What is known already is newer than the snapshot and stays.
func (q *Queues) apply(e *environment, snapshot Snapshot, released map[types.NamespacedName]struct{}) {
	unknown := func(entry Entry) bool {
		_, ended := released[entry.Call]
		return !ended && q.in[entry.Call] == nil
	}
	for _, entry := range snapshot.Running {
		if unknown(entry) {
			e.setRunning(entry)
			q.in[entry.Call] = e
		}
	}
	past := make([]time.Time, 0, len(snapshot.LastAdmitted))
	for _, at := range snapshot.LastAdmitted {
		past = append(past, at)
	}
	slices.SortFunc(past, time.Time.Compare)
	for _, entry := range snapshot.Waiting {
		if unknown(entry) {
			e.enqueue(entry, e.tick+ticksUntil(past, entry.Created)+1)
			q.in[entry.Call] = e
		}
	}
	for name, r := range e.requesters {
		if at, ok := snapshot.LastAdmitted[name]; ok {
			r.lastAdmitted = max(r.lastAdmitted, e.tick+ticksUntil(past, at))
		}
	}
	e.tick += 2 * uint64(len(past))
	e.seeded = true
}

// ticksUntil counts the ticks of the admissions up to a moment.
func ticksUntil(past []time.Time, moment time.Time) uint64 {
	return 2 * uint64(sort.Search(len(past), func(i int) bool { return past[i].After(moment) }))
}

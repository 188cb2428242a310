package executionenvironment

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// backoffs holds how often the pods of each environment's pool failed to start, and when its status was written. After
// a restart it is empty: a pod that can't start is tried again at once, and the counts are written at once.
type backoffs struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*backoff
}

type backoff struct {
	template string
	problem  string
	failures int
	// notBefore is when the next pod may be tried after one failed.
	notBefore time.Time
	written   time.Time
}

func newBackoffs() *backoffs { return &backoffs{all: map[types.NamespacedName]*backoff{}} }

// Bounds of the back-off between pods that don't start.
const (
	firstBackOff = 2 * time.Second
	lastBackOff  = 5 * time.Minute
)

// problem is why the pool's pods don't start; empty when they do.
func (b *backoffs) problem(env types.NamespacedName) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(env).problem
}

// failed counts a pod that did not start.
func (b *backoffs) failed(env types.NamespacedName, problem string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.of(env)
	wait := min(firstBackOff<<min(e.failures, 10), lastBackOff)
	e.failures++
	e.problem, e.notBefore = problem, now.Add(wait)
}

// reset forgets failures: a pod waits.
func (b *backoffs) reset(env types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.of(env)
	e.failures, e.problem, e.notBefore = 0, "", time.Time{}
}

// setTemplate says what the pool's pods are made from now. Another template than before gets a fresh start.
func (b *backoffs) setTemplate(env types.NamespacedName, template string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.of(env); e.template != template {
		*e = backoff{template: template, written: e.written}
	}
}

// notBefore is when the next pod may be made.
func (b *backoffs) notBefore(env types.NamespacedName) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(env).notBefore
}

func (b *backoffs) lastWrite(env types.NamespacedName) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(env).written
}

func (b *backoffs) wrote(env types.NamespacedName, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(env).written = now
}

func (b *backoffs) forget(env types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, env)
}

// of needs the lock.
func (b *backoffs) of(env types.NamespacedName) *backoff {
	e := b.all[env]
	if e == nil {
		e = &backoff{}
		b.all[env] = e
	}
	return e
}

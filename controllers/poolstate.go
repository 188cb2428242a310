package controllers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"toolcall.dev/operator/api/v1alpha1"
)

// PoolState is what the controller of warm pools found out, for the environments' status, and how often an
// environment's pods failed to start, for the back-off. It is made again by looking again.
type PoolState struct {
	mu      sync.Mutex
	pools   map[types.UID]*poolEntry
	changed *Signals
}

type poolEntry struct {
	template string
	problem  string
	failures int
	// notBefore is when the next pod may be tried after one failed.
	notBefore time.Time
}

// NewPoolState makes an empty one.
func NewPoolState() *PoolState {
	return &PoolState{pools: map[types.UID]*poolEntry{}, changed: newSignals(countDelay)}
}

// Source wakes environments whose pool changed.
func (p *PoolState) Source() source.Source { return p.changed.Source() }

// Look returns what the pool's pods are made from, and why they don't start, if they don't.
func (p *PoolState) Look(uid types.UID) (template, problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.pools[uid]; e != nil {
		return e.template, e.problem
	}
	return "", ""
}

// Bounds of the back-off between pods that don't start.
const (
	firstBackOff = 2 * time.Second
	lastBackOff  = 5 * time.Minute
)

// failed counts a pod that did not start.
func (p *PoolState) failed(env *v1alpha1.ExecutionEnvironment, problem string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entry(env.UID)
	wait := min(firstBackOff<<min(e.failures, 10), lastBackOff)
	e.failures++
	e.problem, e.notBefore = problem, now.Add(wait)
	p.changed.Wake(keyOf(env))
}

// settled says that pods made from the template wait. It forgets failures.
func (p *PoolState) settled(env *v1alpha1.ExecutionEnvironment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entry(env.UID)
	e.failures, e.problem, e.notBefore = 0, "", time.Time{}
	p.changed.Wake(keyOf(env))
}

// aim says what the pool's pods are to be made from. Another template than before gets a fresh start.
func (p *PoolState) aim(env *v1alpha1.ExecutionEnvironment, template string) (notBefore time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entry(env.UID)
	if e.template != template {
		*e = poolEntry{template: template}
		p.changed.Wake(keyOf(env))
	}
	return e.notBefore
}

func (p *PoolState) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pools, uid)
}

func (p *PoolState) entry(uid types.UID) *poolEntry {
	e := p.pools[uid]
	if e == nil {
		e = &poolEntry{}
		p.pools[uid] = e
	}
	return e
}

func keyOf(env *v1alpha1.ExecutionEnvironment) types.NamespacedName {
	return types.NamespacedName{Namespace: env.Namespace, Name: env.Name}
}

func poolSize(env *v1alpha1.ExecutionEnvironment) int32 {
	if env.Spec.WarmPool == nil || env.DeletionTimestamp != nil {
		return 0
	}
	return env.Spec.WarmPool.Size
}

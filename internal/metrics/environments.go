package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"toolcall.dev/operator/api/v1alpha1"
)

// MaxEnvironments is how many environments have series of their own at a time. What belongs to any more is counted as Other.
const MaxEnvironments = 200

// maxInNamespace is how many of them are one namespace's: whoever makes environments leaves others theirs.
const maxInNamespace = MaxEnvironments / 8

// Other is the label environment of calls and sessions whose environment has no series of its own: they name none, or one that
// doesn't exist, is deleted, or came after MaxEnvironments others. It is the label namespace too where no environment of the
// namespace has series. No object can have the name, because of its capital letter.
const Other = "Other"

// State is what an environment's gauges show.
type State struct {
	// Ready says that calls can run in the environment.
	Ready bool
	// PoolReady is how many pods of the warm pool wait for a call, PoolDesired how many should: 0 without a warm pool.
	PoolReady, PoolDesired int32
}

// environments are those that have series of their own. The controller of environments adds what exists and removes what is
// deleted; no call adds any, so that the names in calls make no series.
type environments struct {
	mu    sync.Mutex
	limit int
	// share is how many one namespace may have.
	share int
	names sets.Set[types.NamespacedName]
	// inNamespace counts them.
	inNamespace map[string]int
}

var known = newEnvironments(MaxEnvironments, maxInNamespace)

func newEnvironments(limit, share int) *environments {
	return &environments{limit: limit, share: share, names: sets.Set[types.NamespacedName]{}, inNamespace: map[string]int{}}
}

// AddEnvironment gives an environment that exists its series.
func AddEnvironment(name types.NamespacedName) {
	known.mu.Lock()
	defer known.mu.Unlock()
	known.add(name)
}

// SetEnvironment shows the state of an environment that exists.
func SetEnvironment(name types.NamespacedName, state State) { known.set(name, state) }

// ForgetEnvironment removes the series of an environment that is deleted.
func ForgetEnvironment(name types.NamespacedName) { known.forget(name) }

func (e *environments) set(name types.NamespacedName, state State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.add(name) {
		state.show(name)
	}
}

// add says whether the environment has series of its own. It needs the lock.
func (e *environments) add(name types.NamespacedName) bool {
	if e.names.Has(name) {
		return true
	}
	if len(e.names) >= e.limit || e.inNamespace[name.Namespace] >= e.share {
		return false
	}
	e.names.Insert(name)
	if e.inNamespace[name.Namespace]++; e.inNamespace[name.Namespace] == 1 {
		beginSeries(name.Namespace, Other)
	}
	beginSeries(name.Namespace, name.Name)
	return true
}

func (e *environments) forget(name types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.names.Has(name) {
		return
	}
	e.names.Delete(name)
	labels := prometheus.Labels{"namespace": name.Namespace, "environment": name.Name}
	if e.inNamespace[name.Namespace]--; e.inNamespace[name.Namespace] == 0 {
		delete(e.inNamespace, name.Namespace)
		delete(labels, "environment")
	}
	for _, vector := range byEnvironment {
		vector.DeletePartialMatch(labels)
	}
}

// count has a count made with an environment's labels, which stay valid meanwhile.
func (e *environments) count(name types.NamespacedName, add func(namespace, environment string)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	add(e.labels(name))
}

// labels needs the lock.
func (e *environments) labels(name types.NamespacedName) (namespace, environment string) {
	if e.inNamespace[name.Namespace] == 0 {
		return Other, Other
	}
	if !e.names.Has(name) {
		return name.Namespace, Other
	}
	return name.Namespace, name.Name
}

// fold sums what was counted by environment over those that share labels. It has a sum for all labels that there are, so that
// no series comes or goes with a count.
func (e *environments) fold(counts map[types.NamespacedName]int) map[[2]string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	sums := map[[2]string]int{{Other, Other}: 0}
	for namespace := range e.inNamespace {
		sums[[2]string{namespace, Other}] = 0
	}
	for name := range e.names {
		sums[[2]string{name.Namespace, name.Name}] = 0
	}
	for name, n := range counts {
		namespace, environment := e.labels(name)
		sums[[2]string{namespace, environment}] += n
	}
	return sums
}

// environmentOf is where a call or a session of a namespace ran, or was to run; without a name when that was never known.
func environmentOf(namespace string, resolved *v1alpha1.ResolvedEnvironment) types.NamespacedName {
	if resolved == nil {
		return types.NamespacedName{Namespace: namespace}
	}
	return types.NamespacedName{Namespace: namespace, Name: resolved.Name}
}

// withEnvironment are the names of the labels of a metric by environment.
func withEnvironment(more ...string) []string {
	return append([]string{"namespace", "environment"}, more...)
}

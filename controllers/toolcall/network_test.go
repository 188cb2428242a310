package toolcall

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/clusternet"
	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/result"
)

// refusedByNetwork reads toolcall_network_denied_total by type, over all environments.
func refusedByNetwork(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := crmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "toolcall_network_denied_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "type" {
					counts[label.GetValue()] += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return counts
}

// No other test of this package has a call to which the network refused something.
func TestWhatTheNetworkRefusedIsCountedOnceWithTheResult(t *testing.T) {
	restricted := func(o *observation) {
		decided(o)
		o.decision.Network = &network.Rules{Mode: network.Listed}
	}
	o := stored(restricted)
	refused := outcome(func(r *result.Outcome) {
		r.Denied = result.Denials{{Host: "packages.example.com", Count: 2}, {Host: "192.0.2.7", Port: 22, Count: 3}}
		r.MoreDenied = 4
	})
	status := o.withResult(refused, 0)
	before := refusedByNetwork(t)
	check := func(when string, want map[string]float64) {
		t.Helper()
		got := map[string]float64{}
		for kind, count := range refusedByNetwork(t) {
			if by := count - before[kind]; by != 0 {
				got[kind] = by
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, want (-) and got (+):\n%s", when, diff)
		}
	}
	c := newCluster(t, o.call)
	c.fail["status"] = errors.New("the API server is down")
	if _, err := c.apply(t.Context(), o, effects{status: status}); err == nil {
		t.Error("a status is written that can't be")
	}
	check("while the result isn't written", map[string]float64{})
	delete(c.fail, "status")
	if _, err := c.apply(t.Context(), o, effects{status: status}); err != nil {
		t.Fatal(err)
	}
	once := map[string]float64{"Lookup": 2, "Connection": 3, "Omitted": 4}
	check("with the result", once)
	// The runner sends its result again, and later passes write more: of this leader, and of one that is new.
	current := &v1alpha1.ToolCall{}
	if err := c.Client.Get(t.Context(), o.name, current); err != nil {
		t.Fatal(err)
	}
	for _, leader := range []*cluster{c, newCluster(t, current.DeepCopy())} {
		again := stored(restricted)
		again.call = current.DeepCopy()
		more := again.withResult(refused, 0)
		more.Conditions = append(more.Conditions, metav1.Condition{Type: v1alpha1.ConditionOutputStored, Status: metav1.ConditionTrue, Reason: "Stored"})
		for _, status := range []*v1alpha1.ToolCallStatus{again.withResult(refused, 0), more} {
			if _, err := leader.apply(t.Context(), again, effects{status: status}); err != nil {
				t.Fatal(err)
			}
		}
	}
	check("after a repeat and a restart", once)
	if got := status.Network; got == nil || got.Mode != v1alpha1.NetworkListed || len(got.Denied) != 2 || got.OmittedDenied != 4 {
		t.Errorf("the status says %+v", got)
	}
}

// unknownCluster is one whose addresses nobody says.
type unknownCluster struct{}

func (unknownCluster) Facts(context.Context) (*clusternet.Facts, error) {
	return nil, errors.New("nobody says where the API server is")
}

// Its runner is there, and can't be told what the call must not reach.
func TestACallThatCannotBeHandedOverWaitsAsLongAsForItsStart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Cluster = unknownCluster{}
	runner, _ := c.op.connect(t, "own", "")
	o := observed(withJob, func(o *observation) { o.decision.Network = &network.Rules{Mode: network.Listed} })
	pass := func() effects {
		e, err := c.bindTo(t.Context(), o, o.call, o.job, runner)
		if err != nil || len(e.messages) > 0 || !e.release {
			t.Errorf("%+v: %v", e, err)
		}
		return e
	}
	e := pass()
	if s := e.status; s.Phase != v1alpha1.PhasePending || s.Reason != v1alpha1.ReasonNotStarted || !strings.HasPrefix(s.Message, "Nobody says where") || e.wake != soonestRetry {
		t.Errorf("it is %s/%s (%s), and looked at again after %s", s.Phase, s.Reason, s.Message, e.wake)
	}
	o.call.Status, o.now = *e.status, o.now.Add(o.decision.StartTimeout()+time.Second)
	e = pass()
	if s := e.status; s.Reason != v1alpha1.ReasonStartTimeout || !*s.RetrySafe || !strings.Contains(s.Message, "nobody says where") || len(e.remove) != 1 {
		t.Errorf("after its time it is %s/%s (%s), and %d Jobs go", s.Phase, s.Reason, s.Message, len(e.remove))
	}
}

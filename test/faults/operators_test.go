package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// seed makes the random moments of a run; TOOLCALL_FAULTS_SEED repeats one.
func seed(t *testing.T) uint64 {
	t.Helper()
	value := rand.Uint64()
	if text := os.Getenv("TOOLCALL_FAULTS_SEED"); text != "" {
		var err error
		value, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	t.Logf("random moments: TOOLCALL_FAULTS_SEED=%d repeats them", value)
	return value
}

// kills is how often the operator is killed: twenty times, and twice where time is short.
func kills() int {
	if testing.Short() {
		return 2
	}
	return 20
}

// Killed again and again while many calls are anywhere on their way. After each kill the pod is replaced,
// so that the kubelet's growing back-off doesn't keep the operator away from what it is to be caught at.
func TestOperatorKilledAgainAndAgain(t *testing.T) {
	b := newBed(t)
	random := rand.New(rand.NewPCG(seed(t), 0))
	l := b.newLoad(t, 10*kills(), 60*time.Second)
	for range kills() {
		pause(t, time.Second+time.Duration(random.Int64N(int64(7*time.Second))))
		b.killEveryOperator(t)
	}
	l.verify(t, fmt.Sprintf("operator killed %d times", kills()), l.recover(t, time.Now()))
}

// killEveryOperator ends the processes with SIGKILL, those that start too, and has their pods replaced.
func (b *bed) killEveryOperator(t *testing.T) {
	t.Helper()
	pods, err := b.clients.CoreV1().Pods(operatorNamespace).List(t.Context(), operatorPods)
	must(t, err)
	for i := range pods.Items {
		kill(t, managers(&pods.Items[i])...)
		now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
		must(t, b.clients.CoreV1().Pods(operatorNamespace).Delete(t.Context(), pods.Items[i].Name, now))
	}
}

func TestLeaderKilled(t *testing.T) {
	b := newBed(t)
	b.replicas(t, 2)
	l := b.newLoad(t, inFlight, longest)
	l.awaitBegun(t, inFlight/2)
	before, err := b.leader(t.Context())
	must(t, err)
	holder, err := b.holder(t.Context())
	must(t, err)
	kill(t, managers(before)...)
	over := time.Now()
	took := l.recover(t, over)
	l.verify(t, "leader of two killed", took)
	b.expectOtherLeader(t, holder)
}

func TestLeaderDeleted(t *testing.T) {
	b := newBed(t)
	b.replicas(t, 2)
	l := b.newLoad(t, inFlight, longest)
	l.awaitBegun(t, inFlight/2)
	before, err := b.leader(t.Context())
	must(t, err)
	holder, err := b.holder(t.Context())
	must(t, err)
	must(t, b.clients.CoreV1().Pods(operatorNamespace).Delete(t.Context(), before.Name, metav1.DeleteOptions{}))
	l.verify(t, "leader of two deleted", l.recover(t, time.Now()))
	b.expectOtherLeader(t, holder)
}

// expectOtherLeader wants another process to lead: in the other pod, or the one that was started in the killed one's
// place and was faster.
func (b *bed) expectOtherLeader(t *testing.T, before string) {
	t.Helper()
	await(t, "other leader", func(ctx context.Context) (bool, error) {
		now, err := b.holder(ctx)
		return err == nil && now != "" && now != before, err
	})
}

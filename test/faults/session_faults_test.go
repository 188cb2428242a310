package faults

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// The operator is killed again and again while each of sixteen sessions has calls that run and calls that wait. Each kill
// meets an operator that has ended calls since the last one.
func TestSessionsOperatorKilledAgainAndAgain(t *testing.T) {
	b := newBed(t)
	s := b.newSessions(t, 0)
	random := rand.New(rand.NewPCG(seed(t), 0))
	calls := perKill * kills()
	l := s.newSessionLoad(t, calls)
	for i := range kills() {
		l.awaitEnded(t, (i+1)*calls/(kills()+2))
		pause(t, time.Duration(random.Int64N(int64(time.Second))))
		b.killEveryOperator(t)
	}
	l.verify(t, fmt.Sprintf("sessions: operator killed %d times", kills()), l.recover(t, time.Now()))
	s.expectUntouched(t)
}

func TestSessionsAPIServerAway(t *testing.T) {
	b := newBed(t)
	s := b.newSessions(t, 0)
	l := s.newSessionLoad(t, inSessions)
	l.awaitEnded(t, inSessions/4)
	b.stopped(t, "kube-apiserver", 3*time.Minute)
	l.verify(t, "sessions: API server away for 3 min", l.recover(t, time.Now()))
	s.expectUntouched(t)
}

func TestSessionsEtcdKilled(t *testing.T) { sessionsMeet(t, "etcd", "kill") }

func TestSessionsKubeletRestarted(t *testing.T) { sessionsMeet(t, "kubelet", "restart") }

func TestSessionsContainerdRestarted(t *testing.T) { sessionsMeet(t, "containerd", "restart") }

// sessionsMeet does something to a component while sessions have calls: nothing that runs in a session's pod needs it.
func sessionsMeet(t *testing.T, component, verb string) {
	t.Helper()
	b := newBed(t)
	s := b.newSessions(t, 0)
	l := s.newSessionLoad(t, inSessions)
	l.awaitEnded(t, inSessions/4)
	b.control(t, verb, component)
	b.awaitComponents(t)
	done := map[string]string{"kill": "killed", "restart": "restarted"}[verb]
	l.verify(t, "sessions: "+component+" "+done, l.recover(t, time.Now()))
	s.expectUntouched(t)
}

package faults

import (
	"testing"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
)

// inFlight is how many calls most faults meet, and longest how long they sleep at most.
const (
	inFlight = 30
	longest  = 25 * time.Second
)

// givenUp is the end of calls whose container is being started at the very moment at which what starts it is
// restarted: the kubelet doesn't try such a pod again. Those that run go on.
const givenUp = v1alpha1.ReasonPodLost

func TestAPIServerStopped(t *testing.T) {
	b := newBed(t)
	l := b.newLoad(t, inFlight, longest)
	l.awaitBegun(t, inFlight/2)
	b.stopped(t, "kube-apiserver", 30*time.Second)
	l.verify(t, "API server stopped for 30 s", l.recover(t, time.Now()))
}

func TestEtcdKilled(t *testing.T) {
	b := newBed(t)
	l := b.newLoad(t, inFlight, longest)
	l.awaitBegun(t, inFlight/2)
	b.control(t, "kill", "etcd")
	l.verify(t, "etcd killed", l.recover(t, time.Now()))
}

func TestKubeletRestarted(t *testing.T) {
	b := newBed(t)
	l := b.newLoad(t, inFlight, longest)
	l.awaitBegun(t, inFlight/2)
	b.control(t, "restart", "kubelet")
	b.awaitComponents(t)
	l.verify(t, "kubelet restarted", l.recover(t, time.Now()), givenUp)
}

func TestContainerdRestarted(t *testing.T) {
	b := newBed(t)
	l := b.newLoad(t, inFlight, longest)
	l.awaitBegun(t, inFlight/2)
	b.control(t, "restart", "containerd")
	b.awaitComponents(t)
	l.verify(t, "containerd restarted", l.recover(t, time.Now()), givenUp)
}

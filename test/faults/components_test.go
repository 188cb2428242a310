package faults

import (
	"testing"
	"time"
)

// inFlight is how many calls most faults meet, and longest how long they sleep at most.
const (
	inFlight = 30
	longest  = 25 * time.Second
)

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
	l.verify(t, "kubelet restarted", l.recover(t, time.Now()))
}

func TestContainerdRestarted(t *testing.T) {
	b := newBed(t)
	l := b.newLoad(t, inFlight, longest)
	l.awaitBegun(t, inFlight/2)
	b.control(t, "restart", "containerd")
	l.verify(t, "containerd restarted", l.recover(t, time.Now()))
}

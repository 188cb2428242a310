package subresources_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/subresources/apitest"
)

// What a client doesn't take stays at the leader, and in its pod.
func TestAReplicaKeepsLittleOfWhatASlowClientIsPassedOn(t *testing.T) {
	const most = 512 << 10
	s := newSpace(t)
	call := s.create(s.admin, "call", "")
	s.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning})
	source := apitest.NewStreams()
	out := source.Add(call, output.Stdout)
	_, _ = out.Write(make([]byte, 16<<20))
	elected := make(chan struct{})
	close(elected)
	leader := s.start([]output.Source{source}, s.follower(1, elected))
	s.lease("127.0.0.1")
	other := s.start(nil, s.follower(leader.port, nil))
	other.expect("call", "limit=1", http.StatusOK)
	transport := other.transport(other.front)
	transport.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}
	response, err := other.get(transport, "call", "follow=true")
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response, err)
	}
	if _, err := io.ReadFull(response.Body, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if reached := out.Reached(); reached > most {
		t.Errorf("a client that took 1 byte had the replicas read %d", reached)
	}
}

package subresources_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/testing/apitest"
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
	leader := s.startLeader(source)
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

// What goes through two replicas takes twice the memory, and more time.
func TestTheAPIServerIsAskedToConnectToTheLeader(t *testing.T) {
	s := newSpace(t)
	call := s.create(s.admin, "call", "")
	s.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning})
	source := apitest.NewStreams()
	out := source.Add(call, output.Stdout)
	_, _ = out.Write([]byte("one\n"))
	leader := s.startLeader(source)
	s.lease("127.0.0.1")
	other := s.start(nil, s.follower(leader.port, nil))
	leader.expect("call", "limit=1", http.StatusOK)
	other.expect("call", "limit=1", http.StatusOK)
	// The Service leads a new connection to any replica: here to the other one first.
	addresses := make(chan string, 2)
	addresses <- other.address
	addresses <- leader.address
	transport := other.transport(other.front)
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		select {
		case address := <-addresses:
			return (&net.Dialer{}).DialContext(ctx, network, address)
		default:
			return nil, errors.New("the leader was left")
		}
	}
	// The replica asked before, in the same second, above.
	var follow *http.Response
	eventually(t, func() (err error) {
		follow, err = other.get(transport, "call", "follow=true")
		if err != nil {
			t.Fatal(err)
		}
		reading := time.AfterFunc(patience, func() { follow.Body.Close() })
		defer reading.Stop()
		if _, err := io.ReadFull(follow.Body, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		if _, err := other.get(transport, "call", "limit=1"); err != nil {
			t.Fatal(err)
		}
		if len(addresses) > 0 {
			return errors.New("the connection still leads to the other replica")
		}
		return nil
	})
	for range 100 {
		if response, err := other.get(transport, "call", "limit=1"); err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
	}
	// What was under way goes on.
	_, _ = out.Write([]byte("two\n"))
	got := make([]byte, 4)
	if _, err := io.ReadFull(follow.Body, got); err != nil || string(got) != "two\n" {
		t.Errorf("%q, %v", got, err)
	}
}

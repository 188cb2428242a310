package resolver

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// asks sends a query on a stream and waits for its answer.
func asks(t *testing.T, conn net.Conn, id uint16) {
	t.Helper()
	go func() { _, _ = conn.Write(framed(numbered(id, asksFor))) }()
	if raw, err := readMessage(conn, maxStreamMessage); err != nil || unpacked(t, raw).ID != id {
		t.Errorf("query %d: %x, %v", id, raw, err)
	}
}

func TestAnIdleStreamEnds(t *testing.T) {
	t.Parallel()
	inBubble(t, rightAnswer, func(t *testing.T, r *Resolver) {
		conn := client(r)
		asks(t, conn, 1)
		<-time.After(messageTimeout - time.Millisecond)
		asks(t, conn, 2)
		start := time.Now()
		_, err := conn.Read(make([]byte, 1))
		if took := time.Since(start); !errors.Is(err, io.EOF) || took != messageTimeout {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestAStreamWaitsForOthersThatAreBusy(t *testing.T) {
	t.Parallel()
	inBubble(t, func(asked dnsmessage.Message, _ string) [][]byte {
		<-time.After(time.Second)
		return one(simple(asked))
	}, func(t *testing.T, r *Resolver) {
		var open []net.Conn
		for id := range uint16(maxStreams) {
			conn := client(r)
			open = append(open, conn)
			go func() { _, _ = conn.Write(framed(numbered(id, asksFor))) }()
		}
		synctest.Wait()
		one := client(r)
		start := time.Now()
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			asks(t, one, 100)
		}()
		for id, conn := range open {
			if raw, err := readMessage(conn, maxStreamMessage); err != nil || unpacked(t, raw).ID != uint16(id) {
				t.Errorf("a busy stream lost its answer: %v", err)
			}
			_ = conn.Close()
		}
		<-asked
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Streams that never ask hold their places no longer than a message may take.
func TestStreamsThatAskNothingMakeRoom(t *testing.T) {
	t.Parallel()
	inBubble(t, rightAnswer, func(t *testing.T, r *Resolver) {
		for range maxStreams {
			client(r)
		}
		synctest.Wait()
		start := time.Now()
		asks(t, client(r), 7)
		if took := time.Since(start); took != messageTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

func TestManyClientsOfAListenerAreAllAnswered(t *testing.T) {
	t.Parallel()
	s := newNameserver(t, zone(world))
	r := newResolver(t, listing("packages.example.com"), s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go r.Serve(l)
	var done sync.WaitGroup
	for id := range uint16(3 * maxStreams) {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		done.Go(func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(clientTimeout))
			asks(t, conn, id)
		})
	}
	done.Wait()
}

package resolver

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

func TestDatagramsBeyondTheBoundAreLost(t *testing.T) {
	t.Parallel()
	inBubble(t, func(asked dnsmessage.Message, _ string) [][]byte {
		<-time.After(time.Second)
		return one(simple(asked))
	}, func(t *testing.T, r *Resolver) {
		replies := make(chan []byte, 2*maxQueries)
		for range 2 * maxQueries {
			r.Datagram(numbered(1, asksFor), func(msg []byte) { replies <- msg })
		}
		<-time.After(5 * time.Second)
		if answered, lost := count(replies); answered != maxQueries || lost != maxQueries {
			t.Errorf("%d are answered, and %d lost", answered, lost)
		}
	})
}

// count takes what was replied so far: answers, and replies without one.
func count(replies chan []byte) (answered, lost int) {
	for {
		select {
		case msg := <-replies:
			if msg == nil {
				lost++
				continue
			}
			answered++
		default:
			return answered, lost
		}
	}
}

// Whoever sends answers slowly must not make the resolver take more queries meanwhile.
func TestADatagramHoldsItsPlaceUntilTheReplyReturns(t *testing.T) {
	t.Parallel()
	inBubble(t, rightAnswer, func(t *testing.T, r *Resolver) {
		blocked := make(chan struct{})
		for range maxQueries {
			r.Datagram(numbered(1, asksFor), func([]byte) { <-blocked })
		}
		synctest.Wait()
		replies := make(chan []byte, 2)
		r.Datagram(numbered(1, asksFor), func(msg []byte) { replies <- msg })
		synctest.Wait()
		if answered, lost := count(replies); answered != 0 || lost != 1 {
			t.Errorf("%d are answered, and %d lost", answered, lost)
		}
		close(blocked)
		synctest.Wait()
		r.Datagram(numbered(1, asksFor), func(msg []byte) { replies <- msg })
		synctest.Wait()
		if answered, lost := count(replies); answered != 1 || lost != 0 {
			t.Errorf("afterwards %d are answered, and %d lost", answered, lost)
		}
	})
}

func TestEachDatagramIsRepliedToExactlyOnce(t *testing.T) {
	t.Parallel()
	query := numbered(1, asksFor)
	largest := make([]byte, MaxQuery)
	copy(largest, query)
	for sentence, tc := range map[string]struct {
		server func(dnsmessage.Message, string) [][]byte
		msg    []byte
		// before happens before the query, after once it is under way.
		before, after func(*Resolver)
		answered      int
	}{
		"a query":                         {rightAnswer, query, nil, nil, 1},
		"a name that isn't listed":        {rightAnswer, numbered(1, "other.example."), nil, nil, 1},
		"nothing":                         {rightAnswer, nil, nil, nil, 0},
		"a message that isn't a query":    {rightAnswer, bytes.Repeat([]byte{0xff}, 40), nil, nil, 0},
		"a message of the largest size":   {rightAnswer, largest, nil, nil, 1},
		"a message that is too large":     {rightAnswer, append(largest, 0), nil, nil, 1},
		"a nameserver that is silent":     {silent, query, nil, nil, 1},
		"a resolver that is closed":       {rightAnswer, query, (*Resolver).Close, nil, 0},
		"a resolver that is closed later": {silent, query, nil, (*Resolver).Close, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			inBubble(t, tc.server, func(t *testing.T, r *Resolver) {
				if tc.before != nil {
					tc.before(r)
				}
				replies := make(chan []byte, 8)
				r.Datagram(tc.msg, func(msg []byte) { replies <- msg })
				synctest.Wait()
				if tc.after != nil {
					tc.after(r)
				}
				<-time.After(time.Minute)
				if answered, lost := count(replies); answered != tc.answered || lost != 1-tc.answered {
					t.Errorf("%d replies with an answer, and %d without", answered, lost)
				}
			})
		})
	}
}

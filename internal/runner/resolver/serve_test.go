package resolver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// inBubble runs a test with a clock of its own and a resolver whose nameserver answers as given. The resolver is closed
// before the bubble ends.
func inBubble(t *testing.T, answer func(dnsmessage.Message, string) [][]byte, test func(t *testing.T, r *Resolver)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{servers: map[string]func(dnsmessage.Message, string) [][]byte{"192.0.2.1:53": answer}}
		r := configured(t, listing("packages.example.com"), func(c *Config) {
			c.Nameservers, c.Dial = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53")}, p.dial
		})
		test(t, r)
		r.Close()
		// Nameservers that are slow end too.
		<-time.After(time.Minute)
	})
}

func framed(msg []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)
}

// given is a listener that accepts the connections it was made of, and then ends.
type given chan net.Conn

func newGiven(list ...net.Conn) given {
	g := make(given, len(list))
	for _, conn := range list {
		g <- conn
	}
	close(g)
	return g
}

func (g given) Accept() (net.Conn, error) {
	conn, ok := <-g
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (g given) Close() error {
	for conn := range g {
		_ = conn.Close()
	}
	return nil
}

func (g given) Addr() net.Addr { return &net.TCPAddr{} }

// client opens a stream to a resolver in memory.
func client(r *Resolver) net.Conn {
	near, far := net.Pipe()
	go r.Serve(newGiven(far))
	return near
}

// closing tells when it is closed.
type closing struct {
	net.Conn
	closed context.CancelFunc
}

func (c closing) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

func numbered(id uint16, name string) []byte {
	msg := queryFor(name, dnsmessage.TypeA)
	msg.ID = id
	return packed(msg)
}

func rightAnswer(asked dnsmessage.Message, _ string) [][]byte { return one(simple(asked)) }

func TestManyQueriesOnOneStreamAreAllAnswered(t *testing.T) {
	t.Parallel()
	inBubble(t, rightAnswer, func(t *testing.T, r *Resolver) {
		conn := client(r)
		defer conn.Close()
		const count = 1000
		go func() {
			var all []byte
			for id := range uint16(count) {
				all = append(all, framed(numbered(id, asksFor))...)
			}
			// In pieces that aren't messages.
			for part := range slices.Chunk(all, 17) {
				if _, err := conn.Write(part); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		seen := map[uint16]bool{}
		for range count {
			raw, err := readMessage(conn, maxStreamMessage)
			if err != nil {
				t.Fatal(err)
			}
			msg := unpacked(t, raw)
			if seen[msg.ID] || len(addrsOf(t, msg)) != 1 {
				t.Fatalf("got %+v", msg)
			}
			seen[msg.ID] = true
		}
	})
}

func TestAStreamIsAnsweredInAnyOrder(t *testing.T) {
	t.Parallel()
	inBubble(t, func(asked dnsmessage.Message, _ string) [][]byte {
		<-time.After(time.Second)
		return one(simple(asked))
	}, func(t *testing.T, r *Resolver) {
		conn := client(r)
		defer conn.Close()
		go func() {
			_, _ = conn.Write(append(framed(numbered(1, asksFor)), framed(numbered(2, "other.example."))...))
		}()
		for _, want := range []uint16{2, 1} {
			raw, err := readMessage(conn, maxStreamMessage)
			if err != nil || unpacked(t, raw).ID != want {
				t.Errorf("%x, %v: want %d", raw, err, want)
			}
		}
	})
}

func TestStreamsThatDoNotGoOnEnd(t *testing.T) {
	t.Parallel()
	whole := framed(numbered(1, asksFor))
	for sentence, tc := range map[string]struct {
		sent  []byte
		after time.Duration
	}{
		"nothing is sent":                {nil, messageTimeout},
		"half a length":                  {whole[:1], messageTimeout},
		"a length":                       {whole[:2], messageTimeout},
		"half a message":                 {whole[:20], messageTimeout},
		"a message that is no query":     {framed(bytes.Repeat([]byte{0xff}, 40)), 0},
		"a length that is too small":     {[]byte{0, 11}, 0},
		"no length":                      {[]byte{0, 0}, 0},
		"a length that no query has":     {binary.BigEndian.AppendUint16(nil, MaxQuery+1), 0},
		"the largest length":             {[]byte{255, 255}, 0},
		"a query whose answer is unread": {slices.Repeat(whole, 3), messageTimeout},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			inBubble(t, rightAnswer, func(t *testing.T, r *Resolver) {
				near, far := net.Pipe()
				defer near.Close()
				start := time.Now()
				ended, end := context.WithCancel(t.Context())
				defer end()
				go r.Serve(newGiven(closing{far, end}))
				go func() { _, _ = near.Write(tc.sent) }()
				<-ended.Done()
				if took := time.Since(start); took != tc.after {
					t.Errorf("it ends after %v", took)
				}
			})
		})
	}
}

// trickle is a client that sends a byte every so often.
func TestAMessageInManyPiecesHasOneDeadline(t *testing.T) {
	t.Parallel()
	inBubble(t, rightAnswer, func(t *testing.T, r *Resolver) {
		conn := client(r)
		defer conn.Close()
		start := time.Now()
		for _, b := range framed(numbered(1, asksFor)) {
			if _, err := conn.Write([]byte{b}); err != nil {
				if took := time.Since(start); took > messageTimeout+time.Second {
					t.Errorf("it ends after %v", took)
				}
				return
			}
			<-time.After(time.Second)
		}
		t.Error("a message may take for ever")
	})
}

func TestNoMoreQueriesAreUnderWayThanTheBound(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	under, most := 0, 0
	inBubble(t, func(asked dnsmessage.Message, _ string) [][]byte {
		mu.Lock()
		under++
		most = max(most, under)
		mu.Unlock()
		<-time.After(time.Second)
		mu.Lock()
		under--
		mu.Unlock()
		return one(simple(asked))
	}, func(t *testing.T, r *Resolver) {
		for range maxStreams {
			conn := client(r)
			defer conn.Close()
			go func() { _, _ = conn.Write(slices.Repeat(framed(numbered(1, asksFor)), maxQueries)) }()
			go func() { _, _ = io.Copy(io.Discard, conn) }()
		}
		for range 2 * maxQueries {
			r.Datagram(numbered(1, asksFor), func([]byte) {})
		}
		<-time.After(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if most > maxQueries || most < maxQueries/2 {
			t.Errorf("%d were under way at once", most)
		}
	})
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	inBubble(t, silent, func(t *testing.T, r *Resolver) {
		conn := client(r)
		defer conn.Close()
		_, _ = conn.Write(framed(numbered(1, asksFor)))
		r.Datagram(numbered(2, asksFor), func(msg []byte) {
			if msg != nil {
				t.Errorf("an answer after the end: %x", msg)
			}
		})
		synctest.Wait()
		start := time.Now()
		r.Close()
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the stream: %v", err)
		}
		if last, _ := r.Failures(); last != nil {
			t.Errorf("what is ended counts as failed: %+v", last)
		}
		r.Close()
		if _, err := client(r).Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a stream after the end: %v", err)
		}
	})
}

// stubborn is a listener that fails a few times before it accepts.
type stubborn struct {
	net.Listener
	failures int
}

func (s *stubborn) Accept() (net.Conn, error) {
	if s.failures > 0 {
		s.failures--
		return nil, os.NewSyscallError("accept", errors.New("too many open files"))
	}
	return s.Listener.Accept()
}

func TestAListenerIsServedUntilTheResolverIsClosed(t *testing.T) {
	t.Parallel()
	s := newNameserver(t, zone(world))
	r := newResolver(t, listing("packages.example.com"), s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		r.Serve(&stubborn{l, 2})
		close(ended)
	}()
	// Go's own resolver is a client: it asks on a stream, for both types at once, with EDNS, and reads the extended error.
	goResolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}}
	got, err := goResolver.LookupNetIP(t.Context(), "ip", asksFor)
	slices.SortFunc(got, netip.Addr.Compare)
	want := []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("198.51.100.8"), netip.MustParseAddr("2001:db8::7")}
	for i := range got {
		got[i] = got[i].Unmap()
	}
	slices.SortFunc(got, netip.Addr.Compare)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	var dnsError *net.DNSError
	if _, err := goResolver.LookupNetIP(t.Context(), "ip", "private.example.org."); !errors.As(err, &dnsError) || !dnsError.IsNotFound || dnsError.IsTimeout {
		t.Errorf("a name that isn't listed: %v", err)
	}
	r.Close()
	<-ended
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener: %v", err)
	}
	r.Serve(l)
}

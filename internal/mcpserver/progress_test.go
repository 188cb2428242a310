package mcpserver

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/mcpserver/identity"
)

// recorder records notifications.
type recorder struct {
	mu       sync.Mutex
	messages []string
	elapsed  []time.Duration
}

func (n *recorder) notify(message string, elapsed time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.messages = append(n.messages, message)
	n.elapsed = append(n.elapsed, elapsed)
}

func (n *recorder) all() string { return strings.Join(n.messages, "") }

func TestProgressSendsOutputInPieces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &recorder{}
		p := newProgress(t.Context(), n.notify)
		for range 10 {
			p.add([]byte("line\n"))
			time.Sleep(progressInterval / 4)
		}
		p.stop()
		if n.all() != strings.Repeat("line\n", 10) {
			t.Errorf("got %q", n.messages)
		}
		if len(n.messages) < 2 || len(n.messages) > 4 {
			t.Errorf("%d notifications of output in 2.5 intervals", len(n.messages))
		}
		for i := 1; i < len(n.elapsed); i++ {
			if n.elapsed[i] <= n.elapsed[i-1] {
				t.Errorf("progress doesn't grow: %v", n.elapsed)
			}
		}
	})
}

func TestProgressKeepsCharactersWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &recorder{}
		p := newProgress(t.Context(), n.notify)
		for _, b := range []byte("héllo €𝄞") {
			p.add([]byte{b})
			time.Sleep(progressInterval)
		}
		p.add([]byte{0xff, 'x', 0xe2, 0x82})
		p.stop()
		if want := "héllo €𝄞\uFFFDx\uFFFD"; n.all() != want {
			t.Errorf("got %q, want %q", n.all(), want)
		}
	})
}

// A notification has a bounded size, and says how much it omits.
func TestProgressOmitsOutput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &recorder{}
		p := newProgress(t.Context(), n.notify)
		for range 100 {
			p.add([]byte(strings.Repeat("é", 10000)))
		}
		p.add([]byte("end"))
		if len(p.pending) > maxLive {
			t.Errorf("%d bytes are pending", len(p.pending))
		}
		p.stop()
		got := n.all()
		if !strings.HasPrefix(got, "[") || !strings.Contains(got, " bytes omitted]\n") || !strings.HasSuffix(got, "éend") || !utf8.ValidString(got) {
			t.Errorf("got %.60q … %q", got, got[len(got)-20:])
		}
	})
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &recorder{}
		p := newProgress(t.Context(), n.notify)
		time.Sleep(3*heartbeat + time.Second)
		p.stop()
		if len(n.messages) != 3 || n.all() != "" {
			t.Errorf("got %q in three heartbeats", n.messages)
		}
	})
}

// pending is a cluster whose sessions don't become ready.
type pending struct {
	objects
	calls
}

func (pending) Create(context.Context, client.Object, ...client.CreateOption) error { return nil }

func (pending) WaitSession(ctx context.Context, _ *v1alpha1.ToolSession, _ follow.SessionWatcher) (*v1alpha1.ToolSession, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (pending) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}

// Tools that wait for something else than output send signs of life, too.
func TestToolsThatWaitSendHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var received atomic.Int32
		s := newTestServer(t, &identity.Requester{Calls: pending{}, Objects: pending{}, Namespace: "n"}, 8)
		session := connected(t, s, &mcp.ClientOptions{ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { received.Add(1) }})
		params := &mcp.CallToolParams{Name: "start_session", Arguments: fields{"timeout_seconds": 65}}
		params.SetProgressToken("t")
		answer, err := session.CallTool(t.Context(), params)
		must(t, err)
		synctest.Wait()
		if n := received.Load(); answer.IsError || n != 6 {
			t.Errorf("%d heartbeats in 65 s: %s", n, textOf(answer))
		}
	})
}

func TestNoProgressRequested(t *testing.T) {
	t.Parallel()
	p := &progress{}
	if p.output() != nil {
		t.Error("output is received that was not requested")
	}
	p.stop()
}

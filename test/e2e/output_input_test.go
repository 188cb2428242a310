package e2e

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/subresources"
	"toolcall.dev/operator/test/internal/stream"
)

// typed sends standard input to a call of a session.
func typed(t *testing.T, c *stream.Client, session *v1alpha1.ToolSession, call *v1alpha1.ToolCall, offset int, text string, eof bool) answered {
	t.Helper()
	return send(t, c, stream.Request{
		Method: http.MethodPost, Namespace: session.Namespace, Path: "toolsessions/" + session.Name + "/proxy/input",
		Query: url.Values{"call": {call.Name}, "offset": {strconv.Itoa(offset)}, "eof": {strconv.FormatBool(eof)}}, Body: strings.NewReader(text),
	})
}

func (a answered) expectNext(t *testing.T, offset int) {
	t.Helper()
	if next := a.header.Get(subresources.HeaderInputOffset); next != strconv.Itoa(offset) {
		t.Errorf("the next offset is %q, not %d", next, offset)
	}
}

// What is typed arrives once and in order, also what is sent again.
func TestABackgroundCallReadsWhatIsTyped(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	session, c := sp.startSession(t, "typed"), sp.reader(t, "")
	call := sp.create(t, inside(session, inBackground(shell("cat; echo end"))))
	sp.awaitPhase(t, call, v1alpha1.PhaseRunning)
	typed(t, c, session, call, 0, "one\n", false).expect(t, "the first line", http.StatusOK).expectNext(t, 4)
	typed(t, c, session, call, 0, "one\n", false).expect(t, "the first line again", http.StatusConflict).expectNext(t, 4)
	typed(t, c, session, call, 9, "two\n", false).expect(t, "a line with a gap before it", http.StatusConflict).expectNext(t, 4)
	typed(t, c, session, call, 4, "two\n", true).expect(t, "the last line", http.StatusOK).expectNext(t, 8)
	expect(t, sp.awaitFinished(t, call), succeeded("one\ntwo\nend\n"))
	typed(t, c, session, call, 8, "three\n", false).expect(t, "a line after the end", http.StatusConflict)
}

func TestAttachTypesIntoACall(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	session := sp.startSession(t, "typed")
	call := sp.create(t, inside(session, inBackground(shell("python3 -i -q"))))
	sp.awaitPhase(t, call, v1alpha1.PhaseRunning)
	said := sp.plugin(t, "print(6 * 7)\n", "attach", call.Name)
	if said.code != 0 || !strings.Contains(said.out, "42\n") {
		t.Errorf("attach ends with code %d: %q, %q", said.code, said.out, said.err)
	}
}

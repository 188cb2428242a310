package subresources_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/spec"
	"toolcall.dev/operator/internal/subresources"
)

// background starts a call of the session, by its real runner.
func (p *pod) background(name string, change func(*v1alpha1.ToolCallSpec), argv ...string) *v1alpha1.ToolCall {
	p.t.Helper()
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name}}
	call.Spec.SessionRef = &v1alpha1.SessionReference{Name: p.session.Name, UID: string(p.session.UID)}
	call.Spec.Structured, call.Spec.Background = &v1alpha1.StructuredAction{Binary: argv[0], Args: argv[1:]}, true
	if change != nil {
		change(&call.Spec)
	}
	if err := p.clientOf("owner").Create(p.t.Context(), call); err != nil {
		p.t.Fatal(err)
	}
	before := p.started.Load()
	err := p.runner.Assign(string(p.session.UID), &wire.Assignment{
		CallUID: string(call.UID), CallName: name, Argv: argv, Decision: "sealed", Background: call.Spec.Background, Bounds: spec.Bounds{MaxBytesPerStream: 64 << 10},
		Stdin: []byte(call.Spec.Stdin), Environment: envresolve.Plan{WorkingDir: p.dir, AllowedPaths: []string{p.dir}},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	eventually(p.t, func() error {
		if held, _ := p.hub.RunnerByKey(p.runner.KeyHash()).HeldCall(string(call.UID)); p.started.Load() == before && held.State != "Ended" {
			return errors.New("the call hasn't started")
		}
		return nil
	})
	return call
}

// typed is what the input of a call says to a request.
func (p *pod) typed(call, query, content string) *http.Response {
	p.t.Helper()
	path := fmt.Sprintf("/apis/%s/namespaces/%s/toolsessions/%s/proxy/input?call=%s%s", subresources.GroupVersion, p.namespace, p.session.Name, call, query)
	return p.send(p.owner, http.MethodPost, path, strings.NewReader(content))
}

func (p *pod) expectTyped(what string, r *http.Response, code int, offset string) {
	p.t.Helper()
	if got := r.Header.Get(subresources.HeaderInputOffset); r.StatusCode != code || got != offset {
		p.t.Errorf("%s: %d at %q, want %d at %q: %s", what, r.StatusCode, got, code, offset, body(p.t, r))
	}
}

func TestInputReachesARunningCallOnce(t *testing.T) {
	p := newPod(t)
	call := p.background("cat", nil, "cat")
	p.expectTyped("the first", p.typed("cat", "&offset=0", "hello "), http.StatusOK, "6")
	p.expectTyped("the first, repeated", p.typed("cat", "&offset=0", "hello "), http.StatusConflict, "6")
	p.expectTyped("one too early", p.typed("cat", "&offset=7", "world"), http.StatusConflict, "6")
	// The runner connects to another operator, which knows nothing of it.
	p.cut()
	eventually(t, func() error {
		if now := p.hub.RunnerByKey(p.runner.KeyHash()); now == nil || now == p.runner {
			return errors.New("the runner isn't back")
		}
		p.runner = p.hub.RunnerByKey(p.runner.KeyHash())
		return nil
	})
	p.expectTyped("repeated after a reconnect", p.typed("cat", "&offset=0", "hello "), http.StatusConflict, "6")
	large := strings.Repeat("0123456789abcdef", 50_000)
	p.expectTyped("the second", p.typed("cat", "&offset=6", large), http.StatusOK, "800006")
	p.expectTyped("the last", p.typed("cat", "&offset=800006&eof=true", "end"), http.StatusOK, "800009")
	eventually(t, func() error {
		result := p.runner.ResultOf(string(call.UID))
		if result == nil {
			return errors.New("the call hasn't ended")
		}
		if out := result.Outcome.Stdout; out.Bytes != 800009 || out.SHA256 != sum([]byte("hello "+large+"end")) {
			t.Errorf("the call got %d bytes", out.Bytes)
		}
		return nil
	})
	if r := p.typed("cat", "&offset=800009", "more"); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("when it has ended, and its status doesn't say so: %d", r.StatusCode)
	}
	p.setStatus(call, finishedStatus("x"))
	if r := p.typed("cat", "&offset=800009", "more"); r.StatusCode != http.StatusConflict {
		t.Errorf("when it has ended: %d", r.StatusCode)
	}
}

func TestInputThatIsClosedOrNotRead(t *testing.T) {
	p := newPod(t)
	call := p.background("deaf", nil, "sleep", "600")
	p.expectTyped("more than it reads", p.typed("deaf", "&offset=0", strings.Repeat("x", 200_000)), http.StatusTooManyRequests, "65536")
	p.expectTyped("the end", p.typed("deaf", "&offset=65536&eof=true", ""), http.StatusOK, "65536")
	p.expectTyped("the end, repeated", p.typed("deaf", "&offset=65536&eof=true", ""), http.StatusOK, "65536")
	p.expectTyped("more behind the end", p.typed("deaf", "&offset=65536", "x"), http.StatusConflict, "65536")
	if err := p.runner.Stop(string(call.UID), v1alpha1.ReasonCancelRequested); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if p.runner.ResultOf(string(call.UID)) == nil {
			return errors.New("the call hasn't ended")
		}
		return nil
	})
}

func TestInputThatCannotBeTaken(t *testing.T) {
	p := newPod(t)
	p.background("own", func(spec *v1alpha1.ToolCallSpec) { spec.Stdin = "own" }, "cat")
	p.create(p.clientOf("owner"), "elsewhere", "")
	p.create(p.clientOf("owner"), "foreground", "session")
	for query, code := range map[string]int{
		"own&offset=0": http.StatusConflict, "elsewhere&offset=0": http.StatusNotFound, "foreground&offset=0": http.StatusConflict,
		"none&offset=0": http.StatusNotFound, "&offset=0": http.StatusBadRequest, "own": http.StatusBadRequest, "own&offset=-1": http.StatusBadRequest,
		"own&offset=0&eof=": http.StatusConflict, "own&offset=0&eof=yes": http.StatusBadRequest, "own&offset=0&x=1": http.StatusBadRequest,
	} {
		if r := p.typed(query, "", "x"); r.StatusCode != code {
			t.Errorf("%s: %d, want %d: %s", query, r.StatusCode, code, body(t, r))
		}
	}
	if r := p.typed("own", "&offset=0", strings.Repeat("x", 1<<20+1)); r.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("more than a request may have: %d", r.StatusCode)
	}
	p.bind("other", "toolcall-user")
	eventually(t, func() error {
		path := fmt.Sprintf("/apis/%s/namespaces/%s/toolsessions/session/proxy/input?call=own&offset=0", subresources.GroupVersion, p.namespace)
		r := p.send(p.as("other"), http.MethodPost, path, strings.NewReader("x"))
		if raw := string(body(t, r)); r.StatusCode != http.StatusForbidden || !strings.Contains(raw, "SessionNotAllowed") {
			return errors.New(raw)
		}
		return nil
	})
}

// What a trusted call may have isn't for all who may use its session.
func TestOnlyWhoMayTrustTypesIntoATrustedCall(t *testing.T) {
	p := newPod(t)
	p.grant("owner", "trust", "toolcall.dev/executionenvironments")
	p.bind("other", "toolcall-user")
	p.grant("other", "use", "toolcall.dev/toolsessions")
	eventually(t, func() error {
		dry := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "dry"}}
		dry.Spec.Structured, dry.Spec.Trusted = &v1alpha1.StructuredAction{Binary: "cat"}, true
		return p.clientOf("owner").Create(t.Context(), dry, client.DryRunAll)
	})
	path := func(name, query string) string {
		return fmt.Sprintf("/apis/%s/namespaces/%s/toolsessions/%s/proxy/input?call=%s%s", subresources.GroupVersion, p.namespace, p.session.Name, name, query)
	}
	for name, trusted := range map[string]bool{"trusted": true, "plain": false} {
		p.background(name, func(spec *v1alpha1.ToolCallSpec) { spec.Trusted = trusted }, "cat")
		r := p.send(p.as("other"), http.MethodPost, path(name, "&offset=0"), strings.NewReader("x"))
		if said := string(body(t, r)); strings.Contains(said, "the call is trusted") != trusted {
			t.Errorf("another user types into %s: %d: %s", name, r.StatusCode, said)
		}
	}
	if r := p.typed("trusted", "&offset=0", "x"); r.StatusCode != http.StatusOK {
		t.Errorf("its creator: %d: %s", r.StatusCode, body(t, r))
	}
	// The right counts, and not the name: with it others type too.
	p.grant("other", "trust", "toolcall.dev/executionenvironments")
	eventually(t, func() error {
		r := p.send(p.as("other"), http.MethodPost, path("trusted", "&offset=1"), strings.NewReader("y"))
		if r.StatusCode == http.StatusOK && r.Header.Get(subresources.HeaderInputOffset) == "2" {
			return nil
		}
		return fmt.Errorf("who may trust: %d: %s", r.StatusCode, body(t, r))
	})
}

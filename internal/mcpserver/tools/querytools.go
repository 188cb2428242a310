package tools

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/output"
	outputclient "toolcall.dev/operator/internal/output/client"
)

const (
	// startWait and endWait are how long start_session and end_session wait unless they are asked to wait for another time.
	startWait = 120
	endWait   = 30
	// maxQuantity bounds the text of a size.
	maxQuantity = 32
	// defaultRead and MaxRead are how many bytes read_output returns.
	defaultRead = 16 << 10
	MaxRead     = 64 << 10
)

// ListEnvironments lists the environments of the namespace.
var ListEnvironments = define(noArguments, Tool{
	Name: "list_environments", Hints: readOnly(),
	Description: func(*Facts) string {
		return "Lists the environments that calls and sessions can run in: images, which programs, languages and hosts are allowed, and whose files last."
	},
})

// noArguments reads the arguments of a tool that has none.
func noArguments(*arguments) struct{} { return struct{}{} }

// StartSession starts a session.
var StartSession = define(startSessionSpec, Tool{
	Name: "start_session", Hints: changes(false, false),
	Description: func(f *Facts) string {
		return "Starts a session, a pod that keeps files from call to call; returns its name, for the argument session. Its calls run one after the other " +
			"and share the workspace, the home directory and /tmp, but no variables or processes. The files are gone when it ends, " + f.exceptLasting() +
			" " + f.endOfSessions()
	},
})

// SessionRequest is a session as the arguments of start_session describe it.
type SessionRequest struct {
	Spec v1alpha1.ToolSessionSpec
	// ID is the client's name for the session, empty if it has none.
	ID   string
	Wait time.Duration
}

func startSessionSpec(a *arguments) *SessionRequest {
	r := &SessionRequest{}
	if name := a.environment("from list_environments; the default one if absent"); name != "" {
		r.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: name}
	}
	r.Spec.WorkingDir = a.text("working_dir", "where its calls start")
	r.Spec.Env = a.variables()
	if text := a.text("workspace", "size of a volume for workspace and home directory, such as 1Gi; it lasts while the session is suspended"); text != "" {
		size, err := resource.ParseQuantity(text)
		if err != nil || size.Sign() <= 0 || len(text) > maxQuantity {
			a.fail("workspace", "must be a size such as 1Gi, not %q", bounds.Text(text, 40))
		}
		r.Spec.Workspace = &v1alpha1.SessionWorkspace{Size: size}
	}
	r.Spec.IdleTimeoutSeconds = int32Of(a.number("idle_timeout_seconds",
		"without a call, end it, or suspend it with workspace; 900 if absent, 0 for never", 0, math.MaxInt32))
	r.Spec.MaxLifetimeSeconds = a.seconds("max_lifetime_seconds", "28800 if absent")
	r.Wait = a.wait(startWait)
	r.ID = a.requestID("an id of your choice: the same request again returns the same session")
	return r
}

// EndSession ends a session.
var EndSession = define(endSessionSpec, Tool{
	Name: "end_session", Hints: changes(true, true),
	Description: func(f *Facts) string {
		return "Ends a session: cancels its calls and deletes its files, " + f.exceptLasting()
	},
})

// WaitRequest names what to wait for, and how long.
type WaitRequest struct {
	Name string
	Wait time.Duration
}

func endSessionSpec(a *arguments) WaitRequest {
	name := a.session("")
	return WaitRequest{Name: a.require("session", name, "the session to end"), Wait: a.wait(endWait)}
}

// GetCall returns the result of a call.
var GetCall = define(getCallSpec, Tool{
	Name: "get_call", view: Run, Hints: readOnly(),
	Description: func(*Facts) string {
		return "Returns the result of a call, or that it has not finished. Calls are kept for a limited time."
	},
})

func getCallSpec(a *arguments) WaitRequest {
	return WaitRequest{Name: readCallName(a), Wait: a.wait(0)}
}

// CancelCall stops a call.
var CancelCall = define(readCallName, Tool{
	Name: "cancel_call", view: Run, Hints: changes(true, true),
	Description: func(*Facts) string {
		return "Stops a call and returns its result. What it wrote is kept."
	},
})

// readCallName reads the name of the call that a tool is about.
func readCallName(a *arguments) string {
	name := a.objectName("call", "its name, from a result", "a call", "the results of other tools have it")
	return a.require("call", name, "the name of a call")
}

// ReadOutput returns a part of what a call wrote.
var ReadOutput = define(readOutputSpec, Tool{
	Name: "read_output", view: Run, Hints: readOnly(),
	Description: func(*Facts) string {
		return "Returns a part of what a call wrote, also what its result leaves out and while it runs, or of a file that it kept. next_offset says where " +
			"to read on."
	},
})

// readOutputSpec reads which part of what is read. Its namespace is empty unless a URI names it.
func readOutputSpec(a *arguments) *outputclient.Query {
	name := a.objectName("call", "its name, from a result", "a call", "the results of other tools have it")
	r := &outputclient.Query{
		Name:   name,
		Stream: output.Stream(a.choice("stream", "stdout if absent", string(output.Stdout), string(output.Stderr))),
		Offset: ptr.Deref(a.number("offset", "first byte, from 0", 0, maxOffset), 0),
		Limit:  ptr.Deref(a.number("limit", fmt.Sprintf("bytes, %d if absent", defaultRead), 1, MaxRead), defaultRead),
	}
	a.artifact(r)
	if r.Name == "" && !a.unknown && !a.failed["call"] && !a.failed["artifact"] {
		a.fail("call", "is required: the name of a call; or pass the URI of an artifact as artifact")
	}
	return r
}

// artifact reads which file is meant, by its path or by the URI of its link, which names the call too.
func (a *arguments) artifact(r *outputclient.Query) {
	text := a.text("artifact", "instead of stream: path of the file, or URI of its link")
	ref, isURI, err := reply.ParseURI(text)
	switch {
	case err != nil:
		a.fail("artifact", "%s", err.Error())
	case isURI && len(validation.IsDNS1123Subdomain(ref.Call)) > 0:
		a.fail("artifact", "names no call: copy the URI from the result of the call")
	case isURI && r.Name != "" && r.Name != ref.Call:
		a.fail("artifact", "is of another call than %s: leave out call, or pass the path alone", r.Name)
	case isURI:
		r.Namespace, r.Name, r.Artifact = ref.Namespace, ref.Call, ref.Path
	default:
		r.Artifact = text
	}
	if text != "" && a.has("stream") && !isBlank(a.values["stream"]) {
		a.fail("stream", "is not used together with artifact: a call has streams, and files that it kept")
	}
}

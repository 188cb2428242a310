package tools

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
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
	Name: "list_environments", title: "List environments", hints: readOnly(),
	description: func(*Facts) string {
		return "Lists the environments that calls and sessions can run in: the default one, their images and languages, and the " +
			"directories whose files last after a call. Pass a name as the argument environment of other tools."
	},
})

// noArguments reads the arguments of a tool that has none.
func noArguments(*arguments) struct{} { return struct{}{} }

// StartSession starts a session.
var StartSession = define(startSessionSpec, Tool{
	Name: "start_session", title: "Start a session", hints: changes(false, false),
	description: func(f *Facts) string {
		return "Starts a session, a pod that keeps files from call to call, waits until it is ready, and returns its name. Pass the name as the " +
			"argument session of other tools. Its calls run one after the other and share the workspace, the home directory and /tmp; variables, the " +
			"current directory and processes don't carry over. The files are gone when it ends, " + f.exceptLasting() + " With workspace, the workspace " +
			"and the home directory are on a volume of the session, which keeps them while the session is suspended and is deleted with it. End it with " +
			"end_session when you don't need it any more. " + f.endOfSessions()
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
	if name := a.environment("environment of its calls, from list_environments; the default one if absent"); name != "" {
		r.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: name}
	}
	r.Spec.WorkingDir = a.text("working_dir", "directory that its calls start in unless they say otherwise")
	r.Spec.Env = a.variables("environment variables of its calls")
	if text := a.text("workspace", "put the workspace and the home directory on a volume of this size, such as 1Gi"); text != "" {
		size, err := resource.ParseQuantity(text)
		if err != nil || size.Sign() <= 0 || len(text) > maxQuantity {
			a.fail("workspace", "must be a size such as 1Gi, not %q", bounds.Text(text, 40))
		}
		r.Spec.Workspace = &v1alpha1.SessionWorkspace{Size: size}
	}
	r.Spec.IdleTimeoutSeconds = int32Of(a.number("idle_timeout_seconds",
		"end it, or with workspace suspend it, after so long without a call; 900 if absent, 0 for never", 0, math.MaxInt32))
	r.Spec.MaxLifetimeSeconds = a.seconds("max_lifetime_seconds", "end it after so long; 28800 if absent")
	r.Wait = a.wait(startWait)
	r.ID = a.requestID("your name for this session, such as a UUID: the same id with the same arguments returns the same session")
	return r
}

// EndSession ends a session.
var EndSession = define(endSessionSpec, Tool{
	Name: "end_session", title: "End a session", hints: changes(true, true),
	description: func(f *Facts) string {
		return "Ends a session: cancels its running calls and deletes its pod and files, " + f.exceptLasting() + " Read what you need before."
	},
})

// WaitRequest names what to wait for, and how long.
type WaitRequest struct {
	Name string
	Wait time.Duration
}

func endSessionSpec(a *arguments) WaitRequest {
	name := a.session("name of the session")
	return WaitRequest{Name: a.requireAlone("session", name, "the session to end"), Wait: a.wait(endWait)}
}

// GetCall returns the result of a call.
var GetCall = define(getCallSpec, Tool{
	Name: "get_call", title: "Get a call", hints: readOnly(),
	description: func(*Facts) string {
		return "Returns the result of a call, or that it has not finished. With timeout_seconds it waits so long for the result. Finished calls " +
			"are kept for a limited time."
	},
})

func getCallSpec(a *arguments) WaitRequest {
	return WaitRequest{Name: readCallName(a), Wait: a.wait(0)}
}

// CancelCall stops a call.
var CancelCall = define(readCallName, Tool{
	Name: "cancel_call", title: "Cancel a call", hints: changes(true, true),
	description: func(*Facts) string {
		return "Stops a call: its processes are ended, and what it wrote is kept. Returns its result. A call that has finished stays as it is."
	},
})

// readCallName reads the name of the call that a tool is about.
func readCallName(a *arguments) string {
	name := a.objectName("call", "name of the call, from an earlier result", "a call", "the results of other tools have it")
	return a.requireAlone("call", name, "the name of a call")
}

// ReadOutput returns a part of what a call wrote.
var ReadOutput = define(readOutputSpec, Tool{
	Name: "read_output", title: "Read the output of a call", hints: readOnly(),
	description: func(*Facts) string {
		return "Returns a part of what a call wrote to standard output or standard error, also what its result leaves out, and while it runs. " +
			"next_offset in the result says where to read on. Bytes that aren't UTF-8 become U+FFFD."
	},
})

func readOutputSpec(a *arguments) outputclient.Query {
	return outputclient.Query{
		Name:   readCallName(a),
		Stream: output.Stream(a.choice("stream", "which stream; stdout if absent", string(output.Stdout), string(output.Stderr))),
		Offset: ptr.Deref(a.number("offset", "first byte, counted from 0; 0 if absent", 0, maxOffset), 0),
		Limit:  ptr.Deref(a.number("limit", fmt.Sprintf("how many bytes; %d if absent", defaultRead), 1, MaxRead), defaultRead),
	}
}

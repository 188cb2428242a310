package host

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// SessionRunners finds the runner that holds a key, and which calls of a session it may have got. dispatch.Hub is one.
type SessionRunners interface {
	SessionByKey(keyHash string) *dispatch.Session
	Accepted(keyHash string) (calls []dispatch.HeldCall, known bool)
}

// SessionHost is the process that a session records as its runner, as it was observed.
type SessionHost struct {
	Session *v1alpha1.ToolSession
	// Runner is its connection; nil when it isn't connected.
	Runner *dispatch.Session
	// IsGone says that the process has ended for certain.
	IsGone bool
	// HasSaidHello says that this operator has heard it. accepted are the calls that it may have got, then.
	HasSaidHello bool
	accepted     map[string]dispatch.HeldCall
}

// RunnerTraces are what the API has of a session's runner.
type RunnerTraces struct {
	// Pod is the session's pod; nil when the API has none, which proves nothing.
	Pod *corev1.Pod
	// Node is the node that the pod was bound to; nil when it wasn't read, or isn't there. NodeIsDeleted is for what the API
	// server itself says: a cache may be behind.
	Node          *corev1.Node
	NodeIsDeleted bool
}

// FindSessionHost observes the host of a session; nil when the session records none.
func FindSessionHost(runners SessionRunners, session *v1alpha1.ToolSession, traces RunnerTraces) *SessionHost {
	bound := session.Status.Runner
	if bound == nil {
		return nil
	}
	h := &SessionHost{Session: session, Runner: runners.SessionByKey(bound.KeyHash), accepted: map[string]dispatch.HeldCall{}}
	calls, known := runners.Accepted(bound.KeyHash)
	h.HasSaidHello = known
	for _, call := range calls {
		h.accepted[call.UID] = call
	}
	// One that is connected lives, whatever is said of its node.
	h.IsGone = h.Runner == nil && HasRunnerEnded(bound, traces)
	return h
}

// HasRunnerEnded says that a process has ended for certain: the kubelet reports its container terminated, or its node is
// gone or was declared to be out of service. That the pod isn't there proves nothing: somebody may have removed it from
// the API by force, while its containers run.
func HasRunnerEnded(bound *v1alpha1.RunnerBinding, traces RunnerTraces) bool {
	if traces.Pod != nil && string(traces.Pod.UID) == bound.PodUID && Terminated(traces.Pod) != nil {
		return true
	}
	return traces.NodeIsDeleted || traces.Node != nil && isOutOfService(traces.Node)
}

func isOutOfService(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeOutOfService {
			return true
		}
	}
	return false
}

// IsServing says that the runner is connected and was told of the session. One that is connected and wasn't is to be told
// first.
func (h *SessionHost) IsServing() bool {
	if h.Runner == nil {
		return false
	}
	served, ok := h.Runner.ToolSession()
	return ok && served.UID == string(h.Session.UID)
}

// Accepted is what the runner may have of a call; false when it never got the call from this operator, and didn't have it
// before.
func (h *SessionHost) Accepted(callUID string) (dispatch.HeldCall, bool) {
	call, ok := h.accepted[callUID]
	return call, ok
}

// MayHave says whether the runner may have started a call. Of a runner that this operator never heard, only calls that
// were created after the operator began are certain not to have been: wasThere says that the call was there before.
func (h *SessionHost) MayHave(callUID string, wasThere bool) bool {
	if !h.HasSaidHello {
		return wasThere
	}
	_, accepted := h.accepted[callUID]
	return accepted
}

// Room is how many more calls a session's runner can be given now.
type Room struct {
	// Calls take the session's turns, Background ones don't.
	Calls, Background int
}

// Has says whether there is room for a call.
func (r Room) Has(background bool) bool {
	if background {
		return r.Background > 0
	}
	return r.Calls > 0
}

// Room counts what runs. isBackground says what kind a call is that the runner had before; where it doesn't know, the call
// counts as both.
func (h *SessionHost) Room(isBackground func(callUID string) (background, known bool)) Room {
	if !h.IsServing() {
		return Room{}
	}
	room := Room{Calls: int(ptr.Deref(h.Session.Spec.MaxConcurrentCalls, 1)), Background: wire.MaxBackgroundCalls}
	ended := 0
	for _, call := range h.Runner.HeldCalls() {
		switch call.State {
		case dispatch.Assigned, dispatch.Running:
			background, known := call.Background, call.Background
			if !known {
				background, known = isBackground(call.UID)
			}
			if background || !known {
				room.Background--
			}
			if !background || !known {
				room.Calls--
			}
		case dispatch.Ended:
			ended++
		}
	}
	if ended >= wire.MaxUnacknowledged {
		return Room{}
	}
	return Room{Calls: max(room.Calls, 0), Background: max(room.Background, 0)}
}

// InSession places the calls of one session.
type InSession struct {
	Host *SessionHost
	// IsBackground says what kind a call is that the runner has; see SessionHost.Room.
	IsBackground func(callUID string) (background, known bool)
}

// Place gives the call the session's runner, while that has room for it. The call has no other host.
func (p *InSession) Place(call *v1alpha1.ToolCall, _ *decide.Decision) (*Placement, error) {
	if p.Host == nil || !p.Host.Room(p.IsBackground).Has(call.Spec.Background) {
		return nil, nil
	}
	return &Placement{Path: v1alpha1.PathSession, Runner: p.Host.Runner}, nil
}

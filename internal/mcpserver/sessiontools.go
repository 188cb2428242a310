package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/mcpserver/tools"
)

// startSession creates a session, or finds the one that has the request_id, and waits until it is ready.
func (s *Server) startSession(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester, r *tools.SessionRequest) (*reply.Result, error) {
	session := &v1alpha1.ToolSession{Spec: r.Spec}
	if err := setName(ctx, who, session, r.ID); err != nil {
		return nil, err
	}
	session, err := s.createSession(ctx, req, who, session, r.ID != "")
	if err != nil {
		return nil, err
	}
	seen, err := awaitSession(ctx, who, session, r.Wait, func(s *v1alpha1.ToolSession) bool {
		// That of an earlier request may be suspended, and nothing resumes it but a call or who suspended it.
		return s.Status.Phase == v1alpha1.SessionReady || s.Status.Phase == v1alpha1.SessionSuspended || s.Status.Phase == v1alpha1.SessionEnded
	})
	if err != nil && ctx.Err() != nil && r.ID == "" {
		// Nobody knows the name of this session.
		s.abandon(ctx, req, who, client.ObjectKeyFromObject(session))
	}
	if err != nil {
		return nil, err
	}
	return startedResult(seen, r.ID != ""), nil
}

// abandon ends a session whose client has stopped waiting for it.
func (s *Server) abandon(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester, key types.NamespacedName) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	if err := endForSure(ctx, who, key); err != nil {
		s.conversations.failed(key, err)
		return
	}
	s.conversations.remove(req, key)
}

// createSession creates a session that ends with the conversation.
func (s *Server) createSession(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester, session *v1alpha1.ToolSession, named bool) (*v1alpha1.ToolSession, error) {
	session.Labels = labelsOf(req)
	key := client.ObjectKeyFromObject(session)
	if err := s.makeRoom(ctx, req, who, key); err != nil {
		return nil, err
	}
	created, earlier, err := createOrAdopt(ctx, who, session, named)
	switch {
	case isFailure(err):
		return nil, err
	case earlier && err == nil:
		s.conversations.share(req, who, key)
	case !earlier && !s.conversations.keep(req, who, key):
		// Other requests have taken the room meanwhile.
		s.abandon(ctx, req, who, key)
		return nil, errTooManySessions
	}
	if err != nil {
		// It may be there: the end of the conversation ends it.
		return nil, notReady(key.Name, err)
	}
	return created, nil
}

var errTooManySessions = &failure{reason: v1alpha1.ReasonTooManySessions, message: fmt.Sprintf(
	"this conversation has %d sessions: end one with end_session", maxSessionsOfClient)}

// makeRoom returns an error unless a conversation has room for a session, if need be in the place of one that has ended by itself.
func (s *Server) makeRoom(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester, key types.NamespacedName) error {
	keys := s.conversations.keys(req.Session)
	if len(keys) < maxSessionsOfClient || slices.Contains(keys, key) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	for _, other := range keys {
		session := &v1alpha1.ToolSession{}
		err := who.Objects.Get(ctx, other, session)
		if apierrors.IsNotFound(err) || err == nil && session.Status.Phase == v1alpha1.SessionEnded {
			s.conversations.remove(req, other)
		}
	}
	if len(s.conversations.keys(req.Session)) < maxSessionsOfClient {
		return nil
	}
	return errTooManySessions
}

// awaitSession waits until a session is as wanted, but not longer than the limit, and returns its last state.
func awaitSession(ctx context.Context, who *identity.Requester, session *v1alpha1.ToolSession, limit time.Duration, until func(*v1alpha1.ToolSession) bool) (*v1alpha1.ToolSession, error) {
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	seen := session
	_, err := who.Calls.WaitSession(waiting, session, follow.SessionWatcher{
		Until: func(s *v1alpha1.ToolSession) bool { seen = s; return until(s) },
	})
	switch {
	case err == nil, errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return seen, nil
	case errors.Is(err, follow.ErrSessionDeleted):
		seen = seen.DeepCopy()
		seen.Status.Phase, seen.Status.Reason, seen.Status.Message = v1alpha1.SessionEnded, v1alpha1.ReasonEndRequested, "the session was deleted"
		return seen, nil
	default:
		return nil, notReady(session.Name, err)
	}
}

// startedResult describes a session that was started. One that is named may be that of an earlier request.
func startedResult(session *v1alpha1.ToolSession, named bool) *reply.Result {
	r := sessionResult(session)
	switch session.Status.Phase {
	case v1alpha1.SessionReady:
		r.Reason, r.Succeeded = v1alpha1.ReasonReady, true
		r.Output = fmt.Sprintf("Session %s is ready. Pass it as the argument session; end it with end_session.", session.Name)
	case v1alpha1.SessionSuspended:
		r.Succeeded = true
		r.Output = fmt.Sprintf("Session %s is suspended, and keeps its files. You can pass it as the argument session: %s", session.Name,
			reply.OwnWords(session.Status.Message))
	case v1alpha1.SessionEnded:
		// It has run nothing for this request: its calls are requests of their own.
		r.RetrySafe = ptr.To(true)
		r.Output = fmt.Sprintf("session %s has ended: %s", session.Name, reply.OwnWords(session.Status.Message))
		if named {
			r.Output += ". To start another one, use another request_id."
		}
	default:
		r.Succeeded = true
		if r.Reason == "" {
			r.Reason = v1alpha1.ReasonSessionStarting
		}
		r.Output = fmt.Sprintf("Session %s is not ready yet. You can pass it as the argument session already: its calls wait. %s", session.Name,
			reply.OwnWords(session.Status.Message))
	}
	return r
}

func sessionResult(session *v1alpha1.ToolSession) *reply.Result {
	r := &reply.Result{Session: session.Name, Phase: string(session.Status.Phase), Reason: session.Status.Reason}
	if session.Status.Environment != nil {
		r.Environment = session.Status.Environment.Name
	}
	return r
}

// endSession ends a session and waits until it has ended.
func (s *Server) endSession(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester, asked tools.WaitRequest) (*reply.Result, error) {
	name := asked.Name
	key := types.NamespacedName{Namespace: who.Namespace, Name: name}
	session := &v1alpha1.ToolSession{}
	if err := who.Objects.Get(ctx, key, session); err != nil {
		if apierrors.IsNotFound(err) {
			s.conversations.remove(req, key)
		}
		return nil, notThere(err, "session", name)
	}
	if err := requestEnd(ctx, who, key); err != nil && !apierrors.IsNotFound(err) {
		return nil, notChanged("", name, err)
	}
	s.conversations.remove(req, key)
	seen, err := awaitSession(ctx, who, session, asked.Wait, func(s *v1alpha1.ToolSession) bool { return s.Status.Phase == v1alpha1.SessionEnded })
	if err != nil {
		return nil, notChanged("", name, fmt.Errorf("session %s was asked to end, and may not have ended: %w", name, errors.Unwrap(err)))
	}
	r := sessionResult(seen)
	r.Succeeded, r.Output = true, fmt.Sprintf("Session %s has ended.", name)
	if seen.Status.Phase != v1alpha1.SessionEnded {
		r.Reason, r.Output = reply.ReasonNotFinished, fmt.Sprintf("Session %s is ending.", name)
	}
	return r, nil
}

// endPatch asks for the end of a session. A session that has ended ignores it.
var endPatch = client.RawPatch(types.MergePatchType, []byte(`{"spec":{"end":true}}`))

func requestEnd(ctx context.Context, who *identity.Requester, key types.NamespacedName) error {
	session := &v1alpha1.ToolSession{}
	session.Namespace, session.Name = key.Namespace, key.Name
	if err := who.Objects.Patch(ctx, session, endPatch); err != nil {
		return fmt.Errorf("end session %s, which may go on: %w", key.Name, err)
	}
	return nil
}

// notThere explains that an object can't be read.
func notThere(err error, kind, name string) error {
	if apierrors.IsNotFound(err) {
		return &failure{reason: reply.ReasonNotFound, message: fmt.Sprintf("there is no %s %s: it may have been deleted, since those that ended are kept for a limited time only", kind, name)}
	}
	return notCreated(fmt.Errorf("read %s %s: %w", kind, name, err))
}

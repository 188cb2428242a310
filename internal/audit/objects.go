package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/denials"
)

// Bounds of a record's texts, in bytes of JSON.
const (
	// maxArguments is what AuditPolicy.arguments says.
	maxArguments = 16 << 10
	maxText      = 1 << 10
	maxGroups    = 64
)

// About says what is known of an object besides the object.
type About struct {
	// Now is when the record is made.
	Now time.Time
	// Image is that of the environment; empty when it isn't known any more.
	Image string
	// WithArguments says that the policy lets arguments be recorded.
	WithArguments bool
	// IsVouched says that admission checked who created the object.
	IsVouched bool
	// IsDeleted says that the object is gone.
	IsDeleted bool
}

// CallID is the ID of a call's record.
func CallID(uid string) string { return "call/" + uid }

// ApprovalID is the ID of the record of a person's decision.
func ApprovalID(uid string) string { return "approval/" + uid }

// SessionID is the ID of a session's record.
func SessionID(uid string) string { return "session/" + uid }

// OfCall is the record of a call that has ended, or was deleted before.
func OfCall(call *v1alpha1.ToolCall, about About) Record {
	s := &call.Status
	r := newRecord(KindCall, CallID(string(call.UID)), call, about)
	r.Who = whoOf(call.Spec.RequestedBy, about)
	r.What = actionOf(call, about.WithArguments)
	r.Where = whereOf(s.Environment, s.Pod, s.Node, about)
	if call.Spec.SessionRef != nil {
		r.Where.Session = call.Spec.SessionRef.Name
	}
	r.Decision = decisionOf(s, about.WithArguments)
	r.Approvals = approvalsOf(s)
	r.Outcome = &Outcome{
		Phase: string(s.Phase), Reason: s.Reason, ExitCode: s.ExitCode, Signal: s.Signal, Deleted: about.IsDeleted && !s.Phase.Terminal(),
	}
	if about.WithArguments {
		r.Outcome.Message = s.Message
	}
	r.Streams, r.Usage = streamsOf(s), s.Usage
	r.Times.Started, r.Times.Completed = s.StartTime, s.CompletionTime
	r.Times.Ended = endOf(s.Conditions, v1alpha1.ConditionFinished)
	return r
}

// OfSession is the record of a session that has ended, or was deleted before.
func OfSession(session *v1alpha1.ToolSession, about About) Record {
	s := &session.Status
	r := newRecord(KindSession, SessionID(string(session.UID)), session, about)
	r.Who = whoOf(session.Spec.RequestedBy, about)
	r.Where = whereOf(s.Environment, s.Pod, s.Node, about)
	r.Outcome = &Outcome{Phase: string(s.Phase), Reason: s.Reason, Deleted: about.IsDeleted && s.Phase != v1alpha1.SessionEnded}
	r.Times.Ended = endOf(s.Conditions, v1alpha1.ConditionEnded)
	return r
}

// OfApproval is the record of a person's decision about a call, once it is known whether it counts, or when it is deleted before.
func OfApproval(decision *v1alpha1.ToolCallApproval, about About) Record {
	s, ref := &decision.Status, decision.Spec.CallRef
	r := newRecord(KindApproval, ApprovalID(string(decision.UID)), decision, about)
	r.Name, r.UID = ref.Name, ref.UID
	r.Who = whoOf(decision.Spec.Approver, about)
	r.What = &What{Type: string(decision.Spec.Decision), SHA256: strings.TrimPrefix(decision.Spec.Digest, "sha256:")}
	r.Outcome = &Outcome{Phase: string(s.Phase), Deleted: about.IsDeleted && (s.Phase == "" || s.Phase == v1alpha1.ApprovalPending)}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAccepted); c != nil {
		r.Outcome.Reason = c.Reason
	}
	return r
}

func newRecord(kind Kind, id string, o metav1.Object, about About) Record {
	created := o.GetCreationTimestamp()
	return Record{
		Schema: Schema, ID: id, Time: metav1.NewMicroTime(about.Now), Kind: kind,
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()), Times: &Times{Created: &created},
	}
}

func whoOf(by *v1alpha1.Requester, about About) *Who {
	if by == nil {
		return nil
	}
	who := NewWho(by.Username, by.UID, by.Groups)
	who.Unverified = !about.IsVouched
	return who
}

// NewWho is a user as a record has it.
func NewWho(username, uid string, groups []string) *Who {
	who := &Who{Username: bounds.Text(username, maxText), UID: bounds.Text(uid, maxText)}
	for _, group := range groups[:min(len(groups), maxGroups)] {
		who.Groups = append(who.Groups, bounds.Text(group, maxText))
	}
	who.OmittedGroups = len(groups) - len(who.Groups)
	return who
}

// actionOf says what a call was to do. Its tool and its type are those that it was mapped onto, if it got that far.
func actionOf(call *v1alpha1.ToolCall, withArguments bool) *What {
	spec := &call.Spec
	w := &What{}
	if a := call.Status.Action; a != nil {
		w.Type, w.Tool = string(a.Type), bounds.Text(a.Tool, maxText)
	} else if spec.Tool != nil {
		w.Tool = bounds.Text(spec.Tool.Name, maxText)
	}
	switch {
	case spec.Structured != nil:
		w.Binary = bounds.Text(spec.Structured.Binary, maxText)
	case spec.Code != nil:
		w.Language = bounds.Text(spec.Code.Language, maxText)
	case spec.File != nil:
		w.Operation = string(spec.File.Operation)
	}
	action := canonical(&v1alpha1.ToolCallSpec{
		Structured: spec.Structured, Shell: spec.Shell, Code: spec.Code, Tool: spec.Tool, File: spec.File, Stdin: spec.Stdin,
	})
	sum := sha256.Sum256(action)
	w.SHA256 = hex.EncodeToString(sum[:])
	if withArguments {
		w.Arguments = bounds.Text(string(action), maxArguments)
	}
	return w
}

// canonical is JSON with sorted keys and without spaces, as jq -cjS writes it. It is empty for what isn't JSON.
func canonical(of any) []byte {
	raw, err := json.Marshal(of)
	if err != nil {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var value any
	if dec.Decode(&value) != nil {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(value) != nil {
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func whereOf(env *v1alpha1.ResolvedEnvironment, pod, node string, about About) *Where {
	w := &Where{Image: bounds.Text(about.Image, maxText), Pod: pod, Node: node}
	if env != nil {
		w.Environment, w.WorkingDir = env.Name, env.WorkingDir
	}
	return w
}

// decisionOf is the guards' decision; nil when they had not decided.
func decisionOf(s *v1alpha1.ToolCallStatus, withArguments bool) *Decision {
	accepted := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAccepted)
	if accepted == nil || accepted.Status == metav1.ConditionUnknown {
		return nil
	}
	d := &Decision{Allowed: accepted.Status == metav1.ConditionTrue}
	if !d.Allowed {
		d.Reason, d.Rule = accepted.Reason, denials.FieldOf(accepted.Reason, accepted.Message)
		if withArguments {
			d.Message = accepted.Message
		}
	}
	return d
}

// approvalsOf are the decisions of people that counted for a call.
func approvalsOf(s *v1alpha1.ToolCallStatus) (all []Approval) {
	if s.Approval == nil {
		return nil
	}
	for i := range s.Approval.ApprovedBy {
		all = append(all, Approval{Username: s.Approval.ApprovedBy[i].Username, Decision: string(v1alpha1.DecisionApprove)})
	}
	if by := s.Approval.DeniedBy; by != nil {
		all = append(all, Approval{Username: by.Username, Decision: string(v1alpha1.DecisionDeny)})
	}
	return all
}

func streamsOf(s *v1alpha1.ToolCallStatus) *Streams {
	if s.Streams == nil {
		return nil
	}
	out := &Streams{
		Stdout:    Stream{Bytes: s.Streams.Stdout.Bytes, SHA256: s.Streams.Stdout.SHA256},
		Stderr:    Stream{Bytes: s.Streams.Stderr.Bytes, SHA256: s.Streams.Stderr.SHA256},
		Artifacts: len(s.Artifacts),
	}
	for i := range s.Artifacts {
		out.ArtifactBytes += s.Artifacts[i].Bytes
	}
	return out
}

// endOf is when a condition became True; nil if it isn't.
func endOf(conditions []metav1.Condition, kind string) *metav1.Time {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	return &c.LastTransitionTime
}

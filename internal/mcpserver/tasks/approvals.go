package tasks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/approval"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const (
	// keyPrefix and keyDigits define the keys of questions, and the ends of decisions' names.
	keyPrefix = "approval-"
	keyDigits = 32
	// maxNote is the largest number of characters that the API allows in a note, maxCallName what a decision's name has of the call's.
	maxNote     = 1024
	maxCallName = 200
	// maxAsked bounds what was asked for in a form, in bytes: nobody reads more there.
	maxAsked = 16 << 10
)

// Approvals asks those who may decide about a call that waits for people.
type Approvals struct{}

// Pending returns the question about the call, if the requester can answer it: it is somebody else's call, admission lets the requester
// decide, and the requester didn't decide yet.
func (Approvals) Pending(ctx context.Context, who *identity.Requester, call *v1alpha1.ToolCall) mcp.InputRequestMap {
	if !asks(call) || askedFor(call) == "" {
		return nil
	}
	name, uid, err := who.Identify(ctx)
	if err != nil || name == call.RequesterName() {
		return nil
	}
	// The decision itself, which isn't stored, asks admission and finds an earlier one.
	trial := decision(call, name, uid)
	trial.Spec.Decision = v1alpha1.DecisionApprove
	err = who.Objects.Create(ctx, trial, client.DryRunAll)
	if err != nil && (!apierrors.IsAlreadyExists(err) || recorded(ctx, who, trial) != nil) {
		return nil
	}
	return mcp.InputRequestMap{keyOf(call): question(call)}
}

// asks says that a call waits for people, and that its summary has the digest that they decide about.
func asks(call *v1alpha1.ToolCall) bool {
	request := call.Status.Approval
	return call.AwaitsApproval() && approval.Digest(request.Summary) == request.Digest
}

// askedFor is what was asked for, as a form shows it; empty when it is too long for one.
func askedFor(call *v1alpha1.ToolCall) string {
	asked, err := approval.AskedFor(&call.Spec)
	if err != nil || len(asked) > maxAsked {
		return ""
	}
	if asked = terminal.SafeStrict(asked); len(asked) > maxAsked {
		return ""
	}
	return "  " + strings.ReplaceAll(strings.TrimSuffix(asked, "\n"), "\n", "\n  ")
}

// keyOf is the key of the question that a call waits for now: another digest has another key.
func keyOf(call *v1alpha1.ToolCall) string {
	return keyPrefix + strings.TrimPrefix(call.Status.Approval.Digest, "sha256:")[:keyDigits]
}

// question shows what was asked for, whole, and what will happen, and asks for a decision about exactly that.
func question(call *v1alpha1.ToolCall) *mcp.ElicitParams {
	note := &jsonschema.Schema{Type: "string", Title: "Note", Description: "for who asks", MaxLength: new(maxNote)}
	confirm := &jsonschema.Schema{Type: "boolean", Title: "Approve", Description: "true approves the call for one start, false denies it"}
	request := call.Status.Approval
	return &mcp.ElicitParams{
		Message: fmt.Sprintf("%s asks to run call %s in namespace %s.\nBecause of: %s\nSays: %s\nWaits: since %s, until %s\nAsked for:\n%s\n"+
			"This will happen (long texts, values and input stand as their SHA-256; the content of files that it reads or runs isn't part of it):\n%s\nDigest: %s",
			line(call.RequesterName()), line(call.Name), line(call.Namespace), line(strings.Join(request.Causes, ", ")), line(strings.Join(request.Messages, "; ")),
			stamp(request.RequestedAt.Time), stamp(request.ExpiresAt.Time), askedFor(call), terminal.SafeStrict(indented(request.Summary)), request.Digest),
		RequestedSchema: &jsonschema.Schema{
			Type: "object", Required: []string{"confirm"},
			Properties: map[string]*jsonschema.Schema{"confirm": confirm, "note": note}, PropertyOrder: []string{"confirm", "note"},
		},
	}
}

// indented is a summary that can be read by lines. What isn't JSON stays as it is.
func indented(summary string) string {
	var text bytes.Buffer
	if json.Indent(&text, []byte(summary), "", "  ") != nil {
		return summary
	}
	return text.String()
}

// line makes a text one line in which all characters are visible.
func line(text string) string { return terminal.SafeStrict(terminal.SafeLine(text)) }

// form is a client's answer. Only an explicit yes approves.
type form struct {
	Action  string `json:"action"`
	Content struct {
		Confirm *bool  `json:"confirm"`
		Note    string `json:"note"`
	} `json:"content"`
}

// Take records the decision of the requester, which the operator judges, or returns an error: no decision is lost. Who closes the form without
// an answer decides nothing.
func (Approvals) Take(ctx context.Context, who *identity.Requester, call *v1alpha1.ToolCall, key string, answer json.RawMessage) error {
	if !asks(call) || key != keyOf(call) {
		return nil
	}
	var f form
	if err := json.Unmarshal(answer, &f); err != nil {
		return invalidAnswer(key, "it is no answer to a form: "+err.Error())
	}
	name, uid, err := who.Identify(ctx)
	if err != nil {
		return internalError(err)
	}
	d := decision(call, name, uid)
	switch {
	case f.Action == "cancel", name == call.RequesterName():
		return nil
	case f.Action == "decline", f.Action == "accept" && f.Content.Confirm != nil && !*f.Content.Confirm:
		d.Spec.Decision = v1alpha1.DecisionDeny
	case f.Action == "accept" && f.Content.Confirm != nil:
		d.Spec.Decision = v1alpha1.DecisionApprove
	case f.Action == "accept":
		return invalidAnswer(key, `content must have "confirm": true approves, false denies`)
	default:
		return invalidAnswer(key, `action must be "accept", "decline" or "cancel"`)
	}
	if utf8.RuneCountInString(f.Content.Note) > maxNote {
		return invalidAnswer(key, fmt.Sprintf("note must have at most %d characters", maxNote))
	}
	d.Spec.Note = f.Content.Note
	return record(ctx, who, d)
}

// record stores a decision. If an object of its name is another decision, it gets a generated name.
func record(ctx context.Context, who *identity.Requester, d *v1alpha1.ToolCallApproval) error {
	err := who.Objects.Create(ctx, d.DeepCopy())
	if apierrors.IsAlreadyExists(err) {
		if earlier := recorded(ctx, who, d); earlier != nil && earlier.Spec.Decision == d.Spec.Decision {
			return nil
		}
		d.GenerateName, d.Name = d.Name+"-", ""
		err = who.Objects.Create(ctx, d)
	}
	if err != nil {
		return internalError(fmt.Errorf("record the decision: %w", err))
	}
	return nil
}

// recorded returns the stored decision of that name, if the same user made it about the same request; nil otherwise.
func recorded(ctx context.Context, who *identity.Requester, d *v1alpha1.ToolCallApproval) *v1alpha1.ToolCallApproval {
	found := &v1alpha1.ToolCallApproval{}
	if who.Objects.Get(ctx, client.ObjectKeyFromObject(d), found) != nil {
		return nil
	}
	name, uid, err := who.Identify(ctx)
	by := found.Spec.Approver
	if err != nil || by == nil || by.Username != name || by.UID != uid || found.Spec.CallRef != d.Spec.CallRef || found.Spec.Digest != d.Spec.Digest {
		return nil
	}
	return found
}

func invalidAnswer(key, problem string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("inputResponses[%q]: %s", key, problem)}
}

// decision is the decision of a user about what the call waits for now, without what was decided. A user has one name for it, so that a
// repeated answer is no second decision.
func decision(call *v1alpha1.ToolCall, username, uid string) *v1alpha1.ToolCallApproval {
	// JSON keeps the parts apart, whatever characters they have.
	parts, _ := json.Marshal([]string{username, uid, string(call.UID), call.Status.Approval.Digest})
	sum := sha256.Sum256(parts)
	return &v1alpha1.ToolCallApproval{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: call.Namespace, Name: strings.TrimRight(call.Name[:min(len(call.Name), maxCallName)], "-.") + "-" + hex.EncodeToString(sum[:])[:keyDigits],
		},
		Spec: v1alpha1.ToolCallApprovalSpec{
			CallRef: v1alpha1.CallReference{Name: call.Name, UID: string(call.UID)}, Digest: call.Status.Approval.Digest,
		},
	}
}

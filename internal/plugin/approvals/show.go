package approvals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pmezard/go-difflib/difflib"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/approval"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

// show prints what a person needs for a decision.
func show(ctx context.Context, c *cli.Cluster, call *v1alpha1.ToolCall, now time.Time) error {
	d := cli.NewDescription(c.Out)
	d.Section("", []cli.Field{{"Name", call.Name}, {"Namespace", call.Namespace}, {"Requested by", call.RequesterName()}, {"Session", sessionOf(call)}})
	d.Section("Approval", cli.ApprovalFields(call.Status.Approval, now))
	if err := d.Flush(); err != nil {
		return err
	}
	asked, err := approval.AskedFor(&call.Spec)
	if err != nil {
		return err
	}
	willRun, err := indented(call.Status.Approval.Summary)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "\nAsked for:\n%s\nWhat will happen (long texts, values and input stand as their SHA-256):\n%s",
		cli.Indent(terminal.SafeStrict(asked), "  "), cli.Indent(terminal.SafeStrict(willRun), "  "))
	fmt.Fprint(c.Out, "\nThe content of files that the action reads or runs isn't part of this: it may change until then.\n")
	before, err := lastApproved(ctx, c, call)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "\n%s\n", terminal.SafeStrict(difference(before, call)))
	fmt.Fprint(c.Out, inShort(call, asked))
	return nil
}

const (
	// shortRunes is how much of an action stands beside the question, longLines how many lines fit a screen above it.
	shortRunes = 200
	longLines  = 20
)

// inShort is who asks for what, for the end of a long text: the beginning of the action, and how much of it stands above.
func inShort(call *v1alpha1.ToolCall, asked string) string {
	action := []rune(actionText(&call.Spec))
	short := line(string(action[:min(len(action), shortRunes)]))
	text := fmt.Sprintf("\n%s asks for: %s", line(call.RequesterName()), short)
	if lines := strings.Count(asked, "\n"); len(action) > shortRunes || lines > longLines {
		text += fmt.Sprintf("\nThis is the beginning: what was asked for has %d lines and %d bytes. Read all of it above.", lines, len(asked))
	}
	return text + "\n"
}

// line makes a text one line in which all characters are visible.
func line(text string) string { return terminal.SafeStrict(terminal.SafeLine(text)) }

// actionText is the action in words: the script or source itself, and otherwise as JSON.
func actionText(spec *v1alpha1.ToolCallSpec) string {
	switch {
	case spec.Shell != nil:
		return spec.Shell.Command
	case spec.Code != nil:
		return spec.Code.Language + ": " + spec.Code.Source
	case spec.Structured != nil:
		return strings.Join(append([]string{spec.Structured.Binary}, spec.Structured.Args...), " ")
	default:
		text, err := json.Marshal(map[string]any{"tool": spec.Tool, "file": spec.File})
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
}

// indented is a summary that can be read and compared by lines.
func indented(summary string) (string, error) {
	var text bytes.Buffer
	if err := json.Indent(&text, []byte(summary), "", "  "); err != nil {
		return "", fmt.Errorf("read status.approval.summary: %w", err)
	}
	return text.String() + "\n", nil
}

// maxCompared is how many decisions are looked through for one of the same session.
const maxCompared = 20

// lastApproved is the call of the same session, or of the same requester without a session, that the user approved last; nil when there
// is none any more.
func lastApproved(ctx context.Context, c *cli.Cluster, call *v1alpha1.ToolCall) (*v1alpha1.ToolCall, error) {
	user, err := c.Username(ctx)
	if err != nil {
		return nil, err
	}
	list := &v1alpha1.ToolCallApprovalList{}
	mine := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.approver.username", user)}
	if err := c.Client.List(ctx, list, client.InNamespace(call.Namespace), mine); err != nil {
		return nil, c.Explain("list", "toolcallapprovals", "the decisions", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.ToolCallApproval) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	compared := 0
	for i := range list.Items {
		d := &list.Items[i]
		if d.Spec.Decision != v1alpha1.DecisionApprove || d.Status.Phase != v1alpha1.ApprovalAccepted || d.Spec.CallRef.UID == string(call.UID) {
			continue
		}
		if compared++; compared > maxCompared {
			break
		}
		other := &v1alpha1.ToolCall{}
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: call.Namespace, Name: d.Spec.CallRef.Name}, other); client.IgnoreNotFound(err) != nil {
			return nil, c.Explain("get", "toolcalls", "call "+d.Spec.CallRef.Name, err)
		}
		if string(other.UID) == d.Spec.CallRef.UID && other.Status.Approval != nil && isAlike(other, call) {
			return other, nil
		}
	}
	return nil, nil
}

// isAlike says that two calls are of one session, or of one requester without a session.
func isAlike(a, b *v1alpha1.ToolCall) bool {
	if sessionOf(a) == "" && sessionOf(b) == "" {
		return a.RequesterName() == b.RequesterName()
	}
	return sessionOf(a) == sessionOf(b)
}

// sessionOf is the name of a call's session, empty for none.
func sessionOf(call *v1alpha1.ToolCall) string {
	return ptr.Deref(call.Spec.SessionRef, v1alpha1.SessionReference{}).Name
}

// difference is what is different from a call that was approved before.
func difference(before, call *v1alpha1.ToolCall) string {
	if before == nil {
		return "You approved no call of this session, or of this requester, that is still there."
	}
	old, oldErr := comparablePart(before.Status.Approval.Summary)
	now, nowErr := comparablePart(call.Status.Approval.Summary)
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(old), B: difflib.SplitLines(now), FromFile: before.Name, ToFile: call.Name, Context: 2,
	})
	if err := errors.Join(oldErr, nowErr, err); err != nil {
		return "The last call that you approved can't be compared: " + err.Error()
	}
	if text == "" {
		return "It does what call " + before.Name + " did, which you approved."
	}
	return "Difference to the last call that you approved:\n" + strings.TrimSuffix(text, "\n")
}

// comparablePart is a summary without what each call has another of.
func comparablePart(summary string) (string, error) {
	parts := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(summary), &parts); err != nil {
		return "", fmt.Errorf("read status.approval.summary: %w", err)
	}
	delete(parts, "call")
	delete(parts, "requestedAt")
	text, err := json.MarshalIndent(parts, "", "  ")
	if err != nil {
		return "", fmt.Errorf("write the summary: %w", err)
	}
	return string(text) + "\n", nil
}

package approvals

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/approval"
	"toolcall.dev/operator/internal/plugin/cli"
)

const approveLong = `Show a call that waits for a person to decide about it, and approve or deny it: who asked for what, what will run and in which
environment, and what is different from the last call of the same session that you approved.

The decision is about exactly what is shown, for one start. It doesn't bind the content of files that the action reads or runs. If
anything else changes before the call starts, you are asked again. You can't approve a call of your own.

--deny denies the call; the caller reads the note. Scripts pass --yes with the digest of what they checked, from
status.approval.digest of the call. You need the verb "approve" on the call, which the ClusterRole toolcall-approver has.

The exit code is 0 if the decision was counted, and 1 otherwise, also if you didn't confirm.`

const approveExample = `  kubectl toolcall approve push-7
  kubectl toolcall approve push-7 --deny --note "push to a branch"
  kubectl toolcall approve push-7 --yes --digest sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`

// approveOptions are the flags of approve.
type approveOptions struct {
	deny, yes    bool
	note, digest string
}

func newApprove(c *cli.CLI) *cobra.Command {
	o := &approveOptions{}
	command := &cobra.Command{
		Use:               "approve NAME",
		Short:             "Show a call that waits for approval, and approve or deny it",
		Long:              approveLong,
		Example:           approveExample,
		Args:              o.validate,
		ValidArgsFunction: c.CompleteArguments(1, listWaiting),
		RunE:              c.Connected(o.run),
	}
	flags := command.Flags()
	flags.BoolVar(&o.deny, "deny", false, "deny the call")
	flags.StringVar(&o.note, "note", "", "a note for the caller, at most 1024 characters")
	flags.BoolVar(&o.yes, "yes", false, "don't ask; needs --digest")
	flags.StringVar(&o.digest, "digest", "", "decide only if this is the call's status.approval.digest")
	return command
}

const maxNote = 1024

func (o *approveOptions) validate(command *cobra.Command, args []string) error {
	if o.digest == "" && command.Flags().Changed("digest") {
		return errors.New("--digest is empty: give that of what you checked, from status.approval.digest of the call, or leave the flag out")
	}
	if o.yes && o.digest == "" {
		return errors.New("--yes needs --digest: the digest of what you checked, from status.approval.digest of the call")
	}
	if n := len([]rune(o.note)); n > maxNote {
		return fmt.Errorf("--note has %d characters, at most %d are possible", n, maxNote)
	}
	if len(args) != 1 || args[0] == "" {
		return errors.New(`specify the name of one call: "kubectl toolcall approvals" lists the calls that wait`)
	}
	return nil
}

// listWaiting completes the calls that wait.
func listWaiting(ctx context.Context, c *cli.Cluster) (names []string, err error) {
	calls, err := waiting(ctx, c, c.Namespace)
	for i := range calls {
		names = append(names, calls[i].Name)
	}
	return names, err
}

func (o *approveOptions) run(ctx context.Context, c *cli.Cluster, args []string) error {
	call, err := c.GetCall(ctx, args[0])
	if err != nil {
		return err
	}
	if err := o.check(call); err != nil {
		return err
	}
	if !o.yes {
		if err := o.ask(ctx, c, call); err != nil {
			return err
		}
	}
	decision := o.decision(call)
	if err := c.Client.Create(ctx, decision); err != nil {
		return c.Explain("create", "toolcallapprovals", "the decision", err)
	}
	return report(ctx, c, decision)
}

// check says why nothing can be decided about a call.
func (o *approveOptions) check(call *v1alpha1.ToolCall) error {
	request := call.Status.Approval
	switch {
	case !call.AwaitsApproval():
		return fmt.Errorf("call %s doesn't wait for approval: it is %s %s", call.Name, call.Status.Phase, call.Status.Reason)
	case approval.Digest(request.Summary) != request.Digest:
		return fmt.Errorf("the summary of call %s doesn't have the digest that its status says: don't decide, and tell the cluster's administrator", call.Name)
	case o.digest != "" && o.digest != request.Digest:
		return fmt.Errorf("call %s waits for a decision about something else than --digest: its status.approval.digest is %s", call.Name, request.Digest)
	default:
		return nil
	}
}

// ask shows the call, and has the user confirm.
func (o *approveOptions) ask(ctx context.Context, c *cli.Cluster, call *v1alpha1.ToolCall) error {
	if err := show(ctx, c, call, time.Now()); err != nil {
		return err
	}
	question := "Approve"
	if o.deny {
		question = "Deny"
	}
	fmt.Fprintf(c.ErrOut, "%s call %s? [y/N] ", question, call.Name)
	c.Flush()
	answer, _ := bufio.NewReader(c.In).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("nothing was decided")
	}
	return nil
}

func (o *approveOptions) decision(call *v1alpha1.ToolCall) *v1alpha1.ToolCallApproval {
	d := &v1alpha1.ToolCallApproval{ObjectMeta: metav1.ObjectMeta{Namespace: call.Namespace, GenerateName: call.Name[:min(len(call.Name), 200)] + "-"}}
	d.Spec = v1alpha1.ToolCallApprovalSpec{
		CallRef: v1alpha1.CallReference{Name: call.Name, UID: string(call.UID)}, Digest: call.Status.Approval.Digest,
		Decision: v1alpha1.DecisionApprove, Note: o.note,
	}
	if o.deny {
		d.Spec.Decision = v1alpha1.DecisionDeny
	}
	return d
}

const (
	// patience is how long the operator may take to say whether a decision counts.
	patience = 10 * time.Second
	pause    = 100 * time.Millisecond
)

// report says what became of a decision.
func report(ctx context.Context, c *cli.Cluster, decision *v1alpha1.ToolCallApproval) error {
	key := client.ObjectKeyFromObject(decision)
	err := wait.PollUntilContextTimeout(ctx, pause, patience, true, func(ctx context.Context) (bool, error) {
		if err := c.Client.Get(ctx, key, decision); err != nil {
			return false, err
		}
		return decision.Status.Phase == v1alpha1.ApprovalAccepted || decision.Status.Phase == v1alpha1.ApprovalRejected, nil
	})
	switch {
	case wait.Interrupted(err):
		return fmt.Errorf("the operator hasn't said yet whether the decision counts: see kubectl get toolcallapproval %s", decision.Name)
	case err != nil:
		return c.Explain("get", "toolcallapprovals", "decision "+decision.Name, err)
	case decision.Status.Phase == v1alpha1.ApprovalRejected:
		why := meta.FindStatusCondition(decision.Status.Conditions, v1alpha1.ConditionAccepted)
		if why == nil {
			return errors.New("the decision doesn't count")
		}
		return fmt.Errorf("the decision doesn't count: %s: %s", why.Reason, why.Message)
	}
	done := map[v1alpha1.ApprovalDecision]string{v1alpha1.DecisionApprove: "approved", v1alpha1.DecisionDeny: "denied"}
	fmt.Fprintf(c.Out, "toolcall.toolcall.dev/%s %s\n", decision.Spec.CallRef.Name, done[decision.Spec.Decision])
	return nil
}

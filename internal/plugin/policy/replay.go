package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
)

const replayLong = `Judge the calls of a cluster again, as if the policy in a file were applied: which would come out otherwise?

Each call that was created since --since is judged twice, under the policy of its environment as it is now and with
the file in its place. The table shows the calls for which the two differ. Calls in environments that use another
policy than the one in the file don't count, unless --all judges them under the file too.

For environments that name no policy, the file is the default policy if the cluster's default has the same name, even
without the annotation in the file, or if the file has the annotation, even if another policy is the default now.

A requester is taken to have the rights that it had. A session that is gone has no labels. The command needs permission
to list calls, sessions, environments and policies. Nothing is run, and nothing is written.

The exit code is 0 if the calls could be judged, whether or not anything differs, and 1 otherwise.`

const replayExample = `  kubectl toolcall policy replay --policy policy.yaml
  kubectl toolcall policy replay --policy policy.yaml --since 168h -A
  kubectl toolcall policy replay --policy policy.yaml --all -o json`

const (
	// pageSize is how many calls are read at a time.
	pageSize = 500
	// maxChanges is how many calls that come out otherwise are shown. More are counted.
	maxChanges = 10_000
)

// replayOptions are the flags of replay.
type replayOptions struct {
	file       string
	since      time.Duration
	all        bool
	namespaces bool
	*cli.Formats
}

func newReplay(c *cli.CLI) *cobra.Command {
	o := &replayOptions{Formats: cli.NewFormats()}
	command := &cobra.Command{
		Use:     "replay --policy FILE",
		Short:   "Judge calls of the cluster again under a policy in a file",
		Long:    replayLong,
		Example: replayExample,
		Args:    cli.RequireNothing,
		RunE: c.Connected(func(ctx context.Context, cluster *cli.Cluster, _ []string) error {
			return o.run(ctx, cluster)
		}),
	}
	flags := command.Flags()
	flags.StringVar(&o.file, "policy", "", "file with the policy, - for standard input (required)")
	flags.DurationVar(&o.since, "since", 24*time.Hour, "how old the calls may be; 0 means any age")
	flags.BoolVar(&o.all, "all", false, "judge calls in environments that use another policy too")
	flags.BoolVarP(&o.namespaces, "all-namespaces", "A", false, "judge the calls of all namespaces")
	cli.Must(command.MarkFlagFilename("policy", Extensions...))
	cli.Must(command.RegisterFlagCompletionFunc("since", cli.CompleteFrom("1h", "24h", "168h", "0")))
	o.Add(command)
	return command
}

// change is a call that comes out otherwise.
type change struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Requester string `json:"requester,omitempty"`
	Action    string `json:"action,omitempty"`
	// Now is what the policy of the call's environment says of it, Then what the file does.
	Now  string `json:"now"`
	Then string `json:"then"`
	// Message is why one of them refuses it.
	Message string `json:"message,omitempty"`
}

// replayed is what came out.
type replayed struct {
	Judged int `json:"judged"`
	// Changed counts the calls that come out otherwise, Elsewhere those of environments that use another policy, Unknown those whose
	// environment isn't there.
	Changed   int      `json:"changed"`
	Elsewhere int      `json:"elsewhere"`
	Unknown   int      `json:"unknown"`
	Changes   []change `json:"changes"`
}

func (o *replayOptions) run(ctx context.Context, c *cli.Cluster) error {
	switch {
	case o.file == "":
		return errors.New("specify the file of the policy with --policy, - for standard input")
	case o.since < 0:
		return fmt.Errorf("--since %s: must not be negative; 0 means any age", o.since)
	}
	policy, err := ReadOne(o.file, c.In)
	if err != nil {
		return err
	}
	namespace, where := c.Scope(o.namespaces)
	j, err := newJudge(policy, o.all)
	if err != nil {
		return err
	}
	if err := j.read(ctx, c, namespace); err != nil {
		return err
	}
	var oldest time.Time
	if o.since > 0 {
		oldest = time.Now().Add(-o.since)
	}
	result, err := replay(ctx, c, j, namespace, oldest)
	if err != nil {
		return err
	}
	if o.IsObject() {
		return o.PrintReport(c.Out, "PolicyReplay", policy.Name, result)
	}
	c.Note(false, "%d calls judged%s %d come out otherwise.", result.Judged, where, result.Changed)
	if result.Elsewhere > 0 {
		c.Note(false, "%d calls not judged: their environment uses another policy than %q (--all judges them too).", result.Elsewhere, policy.Name)
	}
	if result.Unknown > 0 {
		c.Note(false, "%d calls not judged: their environment is gone.", result.Unknown)
	}
	return result.write(c, o.namespaces)
}

// replay judges the calls page by page: no more than a page is in memory. When the API server doesn't have the list any more, after some
// minutes, it goes on with those behind as they are by then.
func replay(ctx context.Context, c *cli.Cluster, j *judge, namespace string, oldest time.Time) (*replayed, error) {
	result := &replayed{Changes: []change{}}
	for next := ""; ; {
		page := &v1alpha1.ToolCallList{}
		err := c.Client.List(ctx, page, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next))
		if status := apierrors.APIStatus(nil); apierrors.IsResourceExpired(err) && errors.As(err, &status) && status.Status().Continue != "" {
			next = status.Status().Continue
			continue
		}
		if err != nil {
			return nil, c.Explain("list", "toolcalls", "calls", err)
		}
		for i := range page.Items {
			if call := &page.Items[i]; !call.CreationTimestamp.Time.Before(oldest) {
				result.add(j, call)
			}
		}
		if next = page.Continue; next == "" {
			return result, nil
		}
	}
}

// add judges a call.
func (r *replayed) add(j *judge, call *v1alpha1.ToolCall) {
	env := j.environmentOf(call)
	if env == nil {
		r.Unknown++
		return
	}
	if !j.isFor(env) {
		r.Elsewhere++
		return
	}
	r.Judged++
	now, then := j.judge(call, env)
	if now.text == then.text {
		return
	}
	r.Changed++
	if len(r.Changes) >= maxChanges {
		return
	}
	shown := change{Namespace: call.Namespace, Name: call.Name, Requester: call.RequesterName(), Now: now.text, Then: then.text, Message: cmp.Or(then.message, now.message)}
	if call.Status.Action != nil {
		shown.Action = call.Status.Action.Summary
	}
	r.Changes = append(r.Changes, shown)
}

func (r *replayed) write(c *cli.Cluster, namespaces bool) error {
	if len(r.Changes) == 0 {
		return nil
	}
	w := cli.NewTable(c.Out)
	w.Namespaces = namespaces
	w.Row("NAMESPACE", "NAME", "REQUESTED-BY", "ACTION", "NOW", "THEN", "MESSAGE")
	for i := range r.Changes {
		s := &r.Changes[i]
		w.Row(s.Namespace, s.Name, s.Requester, s.Action, s.Now, s.Then, s.Message)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	c.Note(r.Changed == len(r.Changes), "%d more are not shown.", r.Changed-len(r.Changes))
	return nil
}

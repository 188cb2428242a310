package environments

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
)

// verdict is the operator's answer about a call, with what the user can read of where it would run.
type verdict struct {
	*subresourcesv1alpha1.ToolCallReviewStatus
	call   *v1alpha1.ToolCall
	action *guards.Action
	// isInline says that the call was judged under a policy that the user gave.
	isInline bool
	// environment and session are nil for those that the user can't read.
	environment *v1alpha1.ExecutionEnvironment
	session     *v1alpha1.ToolSession
}

// judge asks the operator about a call, and reads for the description where it would run.
func judge(ctx context.Context, c *cli.Cluster, call *v1alpha1.ToolCall, spec subresourcesv1alpha1.ToolCallReviewSpec) (*verdict, error) {
	spec.Call = call.Spec
	status, err := c.Review(ctx, spec)
	if err != nil {
		return nil, err
	}
	v := &verdict{ToolCallReviewStatus: status, call: call, isInline: spec.Policy != nil}
	v.action, _ = guards.Map(&call.Spec)
	if status.Environment != "" {
		v.environment = readIfAllowed(ctx, c, status.Environment, &v1alpha1.ExecutionEnvironment{})
	}
	if ref := call.Spec.SessionRef; ref != nil {
		v.session = readIfAllowed(ctx, c, ref.Name, &v1alpha1.ToolSession{})
	}
	return v, nil
}

// readIfAllowed reads an object that only adds to a description; nil when it can't be read.
func readIfAllowed[T client.Object](ctx context.Context, c *cli.Cluster, name string, into T) (none T) {
	if err := c.Asker.Get(ctx, c.Key(name), into); err != nil {
		return none
	}
	return into
}

// write prints the verdict.
func (v *verdict) write(out io.Writer) error {
	d := cli.NewDescription(out)
	d.Section("", v.resultFields())
	if v.Environment != "" {
		d.Section("", v.contextFields())
	}
	if v.InEffect != nil {
		d.Section("Walls", v.wallFields())
		d.Section("Variables", v.variableFields())
	}
	return d.Flush()
}

func (v *verdict) resultFields() []cli.Field {
	allowed, reason, message := "yes", "", ""
	switch {
	case v.Denial != nil:
		allowed, reason, message = "no, the call would fail before it starts", v.Denial.Reason, v.Denial.Message
		if v.Denial.Phase == v1alpha1.PhaseDenied {
			allowed = "no, the call would be denied"
		}
	case v.Undecided != "":
		allowed = "unknown"
	case v.Approval != nil:
		allowed = "yes, once it has been approved"
	}
	requester := "unknown: the admission policies that record the requester are not installed"
	if by := v.call.Spec.RequestedBy; by != nil {
		requester = by.Username
	}
	return append([]cli.Field{
		{"Allowed", allowed}, {"Reason", reason}, {"Message", message}, {"Requester", requester},
		{"Tool", v.tool()},
	}, v.approvalFields()...)
}

// approvalFields say what people have to decide before the call starts.
func (v *verdict) approvalFields() []cli.Field {
	a := v.Approval
	if a == nil {
		return nil
	}
	return []cli.Field{
		{"Approval for", strings.Join(a.Causes, ", ")},
		{"Approvers", fmt.Sprintf("%d of %s", a.Minimum, cmp.Or(strings.Join(a.Approvers, ", "), "those who may approve the call"))},
		{"Approval within", (time.Duration(a.ExpiresSeconds) * time.Second).String()},
	}
}

// tool is the name of the tool and whether the user has permission to use it.
func (v *verdict) tool() string {
	switch {
	case v.MayUse == nil:
		return v.Tool
	case *v.MayUse:
		return v.Tool + ", which you may use"
	default:
		return v.Tool + ", which you may not use"
	}
}

func (v *verdict) contextFields() []cli.Field {
	name := v.Environment
	switch {
	case v.call.Spec.SessionRef != nil:
		name += " as it is now: the session keeps it as it was when the session began"
	case v.call.Spec.EnvironmentRef == nil:
		name += " (the namespace's default)"
	}
	env := ptr.Deref(v.environment, v1alpha1.ExecutionEnvironment{})
	if env.Spec.Suspend {
		name += ", suspended: the call would wait"
	}
	fields := []cli.Field{{"Session", v.sessionText()}, {"Environment", name}, {"Not ready", NotReady(&env)}, {"Warning", ReadyBut(&env)}, {"Image", env.Spec.Image}, {"Policy", v.policyName()}}
	for _, warning := range v.Warnings {
		fields = append(fields, cli.Field{"Warning", warning})
	}
	if v.InEffect == nil {
		return fields
	}
	limit := "none: it ends with the session"
	if v.InEffect.TimeoutMilliseconds != nil {
		limit = v.timeout().String()
	}
	return append(fields,
		cli.Field{"Command", v.command()},
		cli.Field{"Directory", cmp.Or(v.InEffect.WorkingDir, "the image's working directory")},
		cli.Field{"Allowed paths", cmp.Or(strings.Join(v.InEffect.AllowedPaths, ", "), "/workspace, /tmp and the image's working directory")},
		cli.Field{"Time limit", limit},
		cli.Field{"Queue", v.queue(&env)},
		cli.Field{"Trusted", fmt.Sprint(v.InEffect.Trusted)},
	)
}

// timeout is the limit of the process's time; 0 for none.
func (v *verdict) timeout() time.Duration {
	return time.Duration(ptr.Deref(v.InEffect.TimeoutMilliseconds, 0)) * time.Millisecond
}

// sessionText is the session that the call would run in, and what the call would wait for.
func (v *verdict) sessionText() string {
	switch session := v.session; {
	case session == nil:
		return ""
	case session.Status.Phase == v1alpha1.SessionReady && !session.Spec.Suspend:
		return session.Name
	case session.Spec.Suspend:
		return session.Name + ", suspended: the call would wait"
	case session.Status.Phase == v1alpha1.SessionSuspended:
		return session.Name + ", suspended because it was idle: the call would resume it"
	default:
		return session.Name + ", starting: the call would wait"
	}
}

func (v *verdict) policyName() string {
	switch {
	case v.isInline:
		return "the given one"
	case v.Policy != "":
		return v.Policy
	case v.environment != nil && v.environment.Spec.PolicyName() != "":
		return v.environment.Spec.PolicyName()
	case v.Denial != nil && v.Denial.Reason == v1alpha1.ReasonInvalidPolicy:
		return "the cluster's default"
	default:
		return "the built-in defaults"
	}
}

// command is the complete command line.
func (v *verdict) command() string {
	argv := slices.Clone(v.InEffect.ArgvPrefix)
	switch {
	case v.action == nil:
		return ""
	case v.action.Type == v1alpha1.ActionFile:
		return "none: the runner does it itself"
	case v.action.Type == v1alpha1.ActionShell:
		argv = append(argv, v.action.Command)
	case v.action.Type == v1alpha1.ActionCode:
		argv = append(argv, "<the code>")
	default:
		argv = append(append(argv, v.action.Binary), v.action.Args...)
	}
	return cli.Quoted(argv)
}

// queue is the Kueue queue of the call's Job, empty if neither the environment nor the call names one.
func (v *verdict) queue(env *v1alpha1.ExecutionEnvironment) string {
	own, wanted := jobspec.DefaultQueue(env), v.call.Labels[jobspec.LabelQueue]
	switch {
	case wanted == "" || wanted == own:
		return own
	case jobspec.ChosenQueue(env, v.call) != "":
		return wanted + ", chosen by the call"
	default:
		return cmp.Or(own, "none") + ": the environment doesn't offer " + wanted
	}
}

const imageDefault = "default, unless the image sets it"

// runnerDefaults are the values of variables that the runner sets where no other source does.
var runnerDefaults = map[string]string{"HOME": "the image's, or /tmp/.home if calls can't write to that"}

// variableFields are names and sources, and the values that the call itself sets.
func (v *verdict) variableFields() []cli.Field {
	own := map[string]string{}
	for _, e := range v.call.Spec.Env {
		own[e.Name] = e.Value
	}
	var fields []cli.Field
	for _, variable := range v.InEffect.Variables {
		text := "from " + calls.SourceText[variable.Source]
		switch variable.Source {
		case v1alpha1.EnvSourceCall:
			text += ": " + own[variable.Name]
		case v1alpha1.EnvSourceImage:
			text = imageDefault
		case v1alpha1.EnvSourceEnvironment, v1alpha1.EnvSourceSkill, v1alpha1.EnvSourceDefault:
		}
		fields = append(fields, cli.Field{variable.Name, text})
	}
	for _, name := range v.InEffect.RunnerEnv {
		fields = append(fields, cli.Field{name, cmp.Or(runnerDefaults[name], imageDefault)})
	}
	slices.SortFunc(fields, func(a, b cli.Field) int { return strings.Compare(a[0], b[0]) })
	if len(v.InEffect.StrippedEnv) > 0 {
		fields = append(fields, cli.Field{"(removed)", strings.Join(v.InEffect.StrippedEnv, ", ")})
	}
	inherited := "the image's variables, except blocked ones"
	if v.InEffect.InheritMinimal {
		inherited = "HOME, USER, LOGNAME and PATH of the image"
	}
	return append(fields, cli.Field{"(inherited)", inherited})
}

// network says which network the call would have.
func (v *verdict) network() string {
	switch n := &v.InEffect.Network; {
	case n.Held == v1alpha1.HeldNetworkNone:
		return "none, held by a filter of system calls"
	case n.Held == v1alpha1.HeldNetworkPod:
		return "same as the pod"
	case n.IsOpen && n.InCluster:
		return "held by the runner: every host that isn't denied"
	case n.IsOpen:
		return "held by the runner: every host outside the cluster that isn't denied"
	case len(n.Hosts) == 0:
		return "held by the runner: no host"
	default:
		return "held by the runner: " + JoinFirst(n.Hosts)
	}
}

// wallFields say which walls would hold the call's processes.
func (v *verdict) wallFields() []cli.Field {
	e := v.InEffect
	holder, isFile := "the kernel", v.action != nil && v.action.Type == v1alpha1.ActionFile
	if isFile {
		holder = "the runner"
	}
	isHeld := e.Programs.Held == subresourcesv1alpha1.ProgramsHeldKernel
	fields := []cli.Field{{"Programs", programWall(&e.Programs)}, {"Reading", "not held"}, {"Writing", "not held"}}
	switch {
	case e.ReadPaths != nil:
		fields[1][1] = "held by " + holder + ": " + cmp.Or(strings.Join(e.ReadPaths, ", "), "no path") + ", and what programs need"
	case isHeld:
		fields[1][1] = "not held, except that programs which aren't listed can't be read"
	}
	if e.WritePaths != nil {
		fields[2][1] = "held by " + holder + ": " + cmp.Or(strings.Join(e.WritePaths, ", "), "no path") + ", devices and /dev/shm"
	}
	if isHeld || !isFile && (e.ReadPaths != nil || e.WritePaths != nil) {
		fields = append(fields, cli.Field{"Signals", "held by the kernel, from Linux 6.12 on"})
	}
	return append(fields, cli.Field{"Network", v.network()})
}

// programWall says what holds the list of programs for the call.
func programWall(p *subresourcesv1alpha1.ReviewPrograms) string {
	switch p.Held {
	case subresourcesv1alpha1.ProgramsHeldKernel:
		text := "held by the kernel: " + JoinFirst(p.Allowed)
		if p.Own != "" && !slices.Contains(p.Allowed, p.Own) {
			text += ", and " + p.Own + ", which the environment gives the call: it runs though it isn't listed"
		}
		if p.MultiCall {
			text += "; a multi-call program that runs its applets without executing them may run all of them"
		}
		if p.Writable {
			text += "; what the call writes to a listed path may start too"
		}
		return text
	case subresourcesv1alpha1.ProgramsHeldName:
		return "weak: the names that the call has written out are compared with the list, and nothing holds what a listed program starts: " + JoinFirst(p.Allowed)
	case subresourcesv1alpha1.ProgramsHeldCallOnly:
		return "not held: the call itself names a listed program, which may start any other"
	default:
		return "not held: any program may start"
	}
}

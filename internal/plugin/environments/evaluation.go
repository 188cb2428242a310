package environments

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
)

// write prints the evaluation.
func (v *evaluation) write(out io.Writer) error {
	d := cli.NewDescription(out)
	d.Section("", v.resultFields())
	if v.snapshot.Effective() != nil {
		d.Section("", v.contextFields())
	}
	if v.decision != nil {
		d.Section("Walls", v.wallFields())
		d.Section("Variables", v.variableFields())
	}
	return d.Flush()
}

func (v *evaluation) resultFields() []cli.Field {
	allowed, reason, message := "yes", "", ""
	switch {
	case v.refusal != nil && v.refusal.Denied:
		allowed, reason, message = "no, the call would be denied", v.refusal.Reason, v.refusal.Message
	case v.refusal != nil:
		allowed, reason, message = "no, the call would fail before it starts", v.refusal.Reason, v.refusal.Message
	case v.unknown != nil:
		allowed = "unknown"
	}
	requester := "unknown: the admission policies that record the requester are not installed"
	if by := v.call.Spec.RequestedBy; by != nil {
		requester = by.Username
	}
	return []cli.Field{
		{"Allowed", allowed}, {"Reason", reason}, {"Message", message}, {"Requester", requester},
		{"Tool", v.tool()},
	}
}

// tool is the name of the tool and whether the user has permission to use it.
func (v *evaluation) tool() string {
	switch {
	case v.action == nil:
		return ""
	case v.mayUse == nil:
		return v.action.Tool()
	case *v.mayUse:
		return v.action.Tool() + ", which you may use"
	default:
		return v.action.Tool() + ", which you may not use"
	}
}

func (v *evaluation) contextFields() []cli.Field {
	env := v.snapshot.Effective()
	name := env.Name
	switch {
	case v.snapshot.Session.Object != nil:
		name += " as it is now: the session keeps it as it was when the session began"
	case v.snapshot.Named == nil:
		name += " (the namespace's default)"
	}
	if env.Spec.Suspend {
		name += ", suspended: the call would wait"
	}
	fields := []cli.Field{{"Session", v.session()}, {"Environment", name}, {"Not ready", NotReady(env)}, {"Warning", readyBut(env)}, {"Image", env.Spec.Image}, {"Policy", v.policyName(env)}}
	fields = append(fields, v.warningFields()...)
	if v.decision == nil {
		return fields
	}
	limit := v.decision.Timeout().String()
	if v.decision.TimeoutMilliseconds == 0 {
		limit = "none: it ends with the session"
	}
	return append(fields,
		cli.Field{"Command", v.command()},
		cli.Field{"Directory", cmp.Or(v.decision.Plan.WorkingDir, "the image's working directory")},
		cli.Field{"Allowed paths", cmp.Or(strings.Join(v.decision.Plan.AllowedPaths, ", "), "/workspace, /tmp and the image's working directory")},
		cli.Field{"Time limit", limit},
		cli.Field{"Queue", v.queue(env)},
		cli.Field{"Trusted", fmt.Sprint(v.decision.Plan.Trusted)},
	)
}

func (v *evaluation) policyName(env *v1alpha1.ExecutionEnvironment) string {
	policy, err := v.snapshot.Policies.For(env)
	switch {
	case env.Spec.PolicyName() != "":
		return env.Spec.PolicyName()
	case err != nil || v.policiesUnreadable != nil:
		return "the cluster's default"
	case policy != nil:
		return policy.Name
	default:
		return "the built-in defaults"
	}
}

// command is the complete command line.
func (v *evaluation) command() string {
	if v.action.Type == v1alpha1.ActionFile {
		return "none: the runner does it itself"
	}
	argv := append([]string{}, v.decision.ArgvPrefix...)
	switch v.action.Type {
	case v1alpha1.ActionShell:
		argv = append(argv, v.action.Command)
	case v1alpha1.ActionCode:
		argv = append(argv, "<the code>")
	default:
		argv = append(append(argv, v.action.Binary), v.action.Args...)
	}
	return cli.Quoted(argv)
}

// queue is the Kueue queue of the call's Job, empty if neither the environment nor the call names one.
func (v *evaluation) queue(env *v1alpha1.ExecutionEnvironment) string {
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

// runnerDefaults are variables that the runner sets where no other source does.
var runnerDefaults = []cli.Field{{"HOME", "the image's, or /tmp/.home if calls can't write to that"}, {"PYTHONUNBUFFERED", imageDefault}}

// variableFields are names and sources, and the values that the call itself sets.
func (v *evaluation) variableFields() []cli.Field {
	own := map[string]string{}
	for _, e := range v.call.Spec.Env {
		own[e.Name] = e.Value
	}
	var fields []cli.Field
	for _, variable := range v.resolved.Vars {
		text := "from " + calls.SourceText[v1alpha1.EnvSource(variable.Source)]
		switch variable.Source {
		case envresolve.SourceCall:
			text += ": " + own[variable.Name]
		case envresolve.SourceImage:
			text = imageDefault
		case envresolve.SourceEnvironment, envresolve.SourceSkill, envresolve.SourceDefault:
		}
		fields = append(fields, cli.Field{variable.Name, text})
	}
	untrusted := v.decision.Plan
	untrusted.Trusted = false
	for _, f := range runnerDefaults {
		at, isSet := slices.BinarySearchFunc(fields, f[0], func(of cli.Field, name string) int { return strings.Compare(of[0], name) })
		if !isSet && !untrusted.Blocks(f[0]) {
			fields = slices.Insert(fields, at, f)
		}
	}
	if len(v.resolved.Stripped) > 0 {
		fields = append(fields, cli.Field{"(removed)", strings.Join(v.resolved.Stripped, ", ")})
	}
	inherited := "the image's variables, except blocked ones"
	if v.decision.Plan.InheritMinimal {
		inherited = "HOME, USER, LOGNAME and PATH of the image"
	}
	return append(fields, cli.Field{"(inherited)", inherited})
}

// network says which network the call would have, as the operator decides it.
func (v *evaluation) network() string {
	switch rules := v.decision.Network; {
	case v.decision.DenyNetwork:
		return "none, held by a filter of system calls"
	case rules == nil:
		return "same as the pod"
	case len(rules.Hosts) > 0:
		return "held by the runner: " + JoinFirst(rules.Hosts)
	case rules.Mode == network.Open && rules.AllowInCluster:
		return "held by the runner: every host that isn't denied"
	case rules.Mode == network.Open:
		return "held by the runner: every host outside the cluster that isn't denied"
	case len(rules.Allowed) == 0:
		return "held by the runner: no host"
	default:
		hosts := make([]string, len(rules.Allowed))
		for i := range rules.Allowed {
			hosts[i] = rules.Allowed[i].Host
		}
		return "held by the runner: " + JoinFirst(hosts)
	}
}

// wallFields say which walls would hold the call's processes.
func (v *evaluation) wallFields() []cli.Field {
	fields := []cli.Field{{"Programs", v.programWall()}, {"Reading", "not held"}, {"Writing", "not held"}}
	if r := v.decision.Rules; r != nil {
		switch {
		case r.ReadPaths != nil:
			fields[1][1] = "held by the kernel: " + cmp.Or(strings.Join(slices.Concat(r.ReadPaths, r.WritePaths), ", "), "no path") + ", and what programs need"
		case r.Programs != nil:
			fields[1][1] = "not held, except that programs which aren't listed can't be read"
		}
		if r.WritePaths != nil {
			fields[2][1] = "held by the kernel: " + cmp.Or(strings.Join(r.WritePaths, ", "), "no path") + ", devices and /dev/shm"
		}
		fields = append(fields, cli.Field{"Signals", "held by the kernel, from Linux 6.12 on"})
	}
	return append(fields, cli.Field{"Network", v.network()})
}

// programWall says what holds the list of programs for the call.
func (v *evaluation) programWall() string {
	const none = "not held: any program may start"
	if r := v.decision.Rules; r != nil && r.Programs != nil {
		text := "held by the kernel: " + JoinFirst(r.Programs.Allowed)
		if own := r.Programs.Own; own != "" && !slices.Contains(r.Programs.Allowed, own) {
			text += ", and " + own + ", which the environment gives the call: it runs though it isn't listed"
		}
		if r.Programs.AllowMultiCall {
			text += "; a multi-call program that runs its applets without executing them may run all of them"
		}
		if r.Programs.AllowWritable {
			text += "; what the call writes to a listed path may start too"
		}
		return text
	}
	policy, _ := v.snapshot.Policies.For(v.snapshot.Effective()) // Without an error: the decision needed it.
	spec := specOf(policy)
	binaries := ptr.Deref(spec.Binaries, v1alpha1.BinariesPolicy{})
	shell := ptr.Deref(spec.Shell, v1alpha1.ShellPolicy{})
	switch {
	case v.action.Type == v1alpha1.ActionStructured && binaries.Mode == v1alpha1.BinariesEnforced,
		v.action.Type == v1alpha1.ActionShell && shell.Commands == v1alpha1.ShellAllowlisted:
		return "weak: the names that the call has written out are compared with the list, and nothing holds what a listed program starts: " + JoinFirst(binaries.Allowed)
	case v.action.Type == v1alpha1.ActionStructured && len(binaries.Allowed) > 0:
		return "not held: the call itself names a listed program, which may start any other"
	default:
		return none
	}
}

// warningFields are what is weaker in the call's policy than it looks.
func (v *evaluation) warningFields() []cli.Field {
	policy, err := v.snapshot.Policies.For(v.snapshot.Effective())
	if err != nil {
		return nil
	}
	compiled, err := decide.CompilePolicy(policy)
	if err != nil {
		return nil
	}
	var fields []cli.Field
	for _, warning := range compiled.Warnings() {
		fields = append(fields, cli.Field{"Warning", warning})
	}
	return fields
}

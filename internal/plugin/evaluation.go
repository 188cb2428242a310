package plugin

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/jobspec"
)

// write prints the evaluation.
func (v *evaluation) write(out io.Writer) error {
	w := newTable(out)
	writeSection(w, section{"", v.resultFields()})
	if v.snapshot.Effective() != nil {
		writeSection(w, section{"", v.contextFields()})
	}
	if v.decision != nil {
		writeSection(w, section{"Walls", v.wallFields()})
		writeSection(w, section{"Variables", v.variableFields()})
	}
	return w.Flush()
}

func (v *evaluation) resultFields() []field {
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
	return []field{
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

func (v *evaluation) contextFields() []field {
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
	fields := []field{{"Session", v.session()}, {"Environment", name}, {"Not ready", notReady(env)}, {"Warning", readyBut(env)}, {"Image", env.Spec.Image}, {"Policy", v.policyName(env)}}
	fields = append(fields, v.warningFields()...)
	if v.decision == nil {
		return fields
	}
	limit := v.decision.Timeout().String()
	if v.decision.TimeoutMilliseconds == 0 {
		limit = "none: it ends with the session"
	}
	return append(fields,
		field{"Command", v.command()},
		field{"Directory", orText(v.decision.Plan.WorkingDir, "the image's working directory")},
		field{"Allowed paths", orText(strings.Join(v.decision.Plan.AllowedPaths, ", "), "/workspace, /tmp and the image's working directory")},
		field{"Time limit", limit},
		field{"Queue", v.queue(env)},
		field{"Trusted", fmt.Sprint(v.decision.Plan.Trusted)},
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
	return quoted(argv)
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
		return orText(own, "none") + ": the environment doesn't offer " + wanted
	}
}

const imageDefault = "default, unless the image sets it"

// runnerDefaults are variables that the runner sets where no other source does.
var runnerDefaults = []field{{"HOME", "the image's, or /tmp/.home if calls can't write to that"}, {"PYTHONUNBUFFERED", imageDefault}}

// variableFields are names and sources, and the values that the call itself sets.
func (v *evaluation) variableFields() []field {
	own := map[string]string{}
	for _, e := range v.call.Spec.Env {
		own[e.Name] = e.Value
	}
	var fields []field
	for _, variable := range v.resolved.Vars {
		text := "from " + sourceText[v1alpha1.EnvSource(variable.Source)]
		switch variable.Source {
		case envresolve.SourceCall:
			text += ": " + own[variable.Name]
		case envresolve.SourceImage:
			text = imageDefault
		case envresolve.SourceEnvironment, envresolve.SourceSkill, envresolve.SourceDefault:
		}
		fields = append(fields, field{variable.Name, text})
	}
	untrusted := v.decision.Plan
	untrusted.Trusted = false
	for _, f := range runnerDefaults {
		at, isSet := slices.BinarySearchFunc(fields, f.name, func(of field, name string) int { return strings.Compare(of.name, name) })
		if !isSet && !untrusted.Blocks(f.name) {
			fields = slices.Insert(fields, at, f)
		}
	}
	if len(v.resolved.Stripped) > 0 {
		fields = append(fields, field{"(removed)", strings.Join(v.resolved.Stripped, ", ")})
	}
	inherited := "the image's variables, except blocked ones"
	if v.decision.Plan.InheritMinimal {
		inherited = "HOME, USER, LOGNAME and PATH of the image"
	}
	return append(fields, field{"(inherited)", inherited})
}

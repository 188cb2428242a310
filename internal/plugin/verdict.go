package plugin

import (
	"fmt"
	"io"
	"strings"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/jobspec"
)

// write shows a verdict to a person.
func (v *verdict) write(out io.Writer) error {
	w := newTable(out)
	writeSection(w, section{"", v.answer()})
	if v.where.Effective() != nil {
		writeSection(w, section{"", v.context()})
	}
	if v.refusal == nil && v.compiled != nil {
		writeSection(w, section{"Variables", v.variables()})
	}
	return w.Flush()
}

func (v *verdict) answer() []field {
	allowed, reason, message := "yes", "", ""
	switch {
	case v.refusal != nil && v.refusal.Denied:
		allowed, reason, message = "no, it would be denied", v.refusal.Reason, v.refusal.Message
	case v.refusal != nil:
		allowed, reason, message = "no, it would fail before it started", v.refusal.Reason, v.refusal.Message
	case v.unknown != nil:
		allowed = "can't be told"
	}
	caller := "unknown: the admission policies that say who creates a call are missing"
	if by := v.call.Spec.RequestedBy; by != nil {
		caller = by.Username
	}
	return []field{
		{"Allowed", allowed}, {"Reason", reason}, {"Message", message}, {"Caller", caller},
		{"Tool", v.tool()},
	}
}

// tool is what the right is asked for, and whether the caller has it.
func (v *verdict) tool() string {
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

func (v *verdict) context() []field {
	env := v.where.Effective()
	name := env.Name
	if v.where.Named == nil {
		name += " (the namespace's default)"
	}
	fields := []field{{"Environment", name}, {"Image", env.Spec.Image}, {"Policy", v.policyName(env)}}
	if v.refusal != nil || v.compiled == nil {
		return fields
	}
	limit := v.compiled.Timeout(v.action)
	return append(fields,
		field{"Command", v.command()},
		field{"Directory", orText(v.plan.WorkingDir, "the image's")},
		field{"Allowed paths", orText(strings.Join(v.plan.AllowedPaths, ", "), "/workspace, /tmp and the image's directory")},
		field{"Time limit", limit.String()},
		field{"Queue", v.queue(env)},
		field{"Network", v.network()},
		field{"Trusted", fmt.Sprint(v.plan.Trusted)},
	)
}

func (v *verdict) policyName(env *v1alpha1.ExecutionEnvironment) string {
	switch {
	case v.policy != nil:
		return v.policy.Name
	case env.Spec.PolicyName() != "":
		return env.Spec.PolicyName()
	case v.compiled != nil:
		return "the built-in defaults"
	default:
		return "the cluster's default"
	}
}

// command is the whole command line.
func (v *verdict) command() string {
	argv := append([]string{}, v.argv...)
	switch v.action.Type {
	case v1alpha1.ActionShell:
		argv = append(argv, v.action.Command)
	case v1alpha1.ActionCode:
		argv = append(argv, "<the snippet>")
	default:
		argv = append(append(argv, v.action.Binary), v.action.Args...)
	}
	return quoted(argv)
}

// queue is where the call's Job would wait, nothing when the environment leaves that to the cluster.
func (v *verdict) queue(env *v1alpha1.ExecutionEnvironment) string {
	own, wanted := jobspec.DefaultQueue(env), v.call.Labels[jobspec.LabelQueue]
	switch {
	case wanted == "" || wanted == own:
		return own
	case jobspec.ChosenQueue(env, v.call) != "":
		return wanted + ", which the call chooses"
	default:
		return orText(own, "none") + ", since the environment doesn't offer " + wanted
	}
}

func (v *verdict) network() string {
	if v.action.Type == v1alpha1.ActionCode && !v.action.Network {
		return "none"
	}
	return "as the pod has it"
}

// variables are names and sources; values are the caller's own alone.
func (v *verdict) variables() []field {
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
			text = "set for every call, unless the image does"
		}
		fields = append(fields, field{variable.Name, text})
	}
	if len(v.resolved.Stripped) > 0 {
		fields = append(fields, field{"(removed)", strings.Join(v.resolved.Stripped, ", ")})
	}
	inherited := "the image's own, but for blocked ones"
	if v.plan.InheritMinimal {
		inherited = "of the image's HOME, USER, LOGNAME and PATH"
	}
	return append(fields, field{"(and)", inherited})
}

func orText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

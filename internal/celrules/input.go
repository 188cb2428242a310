package celrules

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/guards"
)

// Input is what rules know of a call.
type Input struct {
	Call   *v1alpha1.ToolCall
	Action *guards.Action
	// Caller is who created the call; nil when unknown.
	Caller *v1alpha1.Requester
	// Environment is the one in effect.
	Environment *v1alpha1.ExecutionEnvironment
	// Session is the call's; nil for a call without one.
	Session *v1alpha1.ToolSession
}

const (
	// maxElements bounds each list and each map that rules see, maxText each text in bytes, maxDepth how deep they nest.
	maxElements = 1024
	maxText     = 512 << 10
	maxDepth    = 32
)

// variables are those of all expressions. absent says why the commands or the modules aren't among them.
func (s *Set) variables(in *Input) (all map[string]any, absent string, err error) {
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&in.Call.Spec)
	if err != nil {
		return nil, "", fmt.Errorf("read the call's spec: %w", err)
	}
	for _, name := range unverified {
		delete(spec, name)
	}
	action, absent := s.action(in)
	all = map[string]any{
		varCall: map[string]any{
			"metadata": map[string]any{"namespace": in.Call.Namespace, "name": in.Call.Name, "labels": in.Call.Labels},
			"spec":     spec,
		},
		varAction:      action,
		varCaller:      callerOf(in.Caller),
		varEnvironment: map[string]any{"name": in.Environment.Name, "image": in.Environment.Spec.Image, "labels": in.Environment.Labels},
		varSession:     nil,
	}
	if in.Session != nil {
		all[varSession] = map[string]any{"name": in.Session.Name, "labels": in.Session.Labels}
	}
	for _, name := range []string{varCall, varAction, varCaller, varEnvironment, varSession} {
		if path, what := tooLarge(all[name], 0); what != "" {
			return nil, "", fmt.Errorf("%s%s %s", name, path, what)
		}
	}
	return all, absent, nil
}

func callerOf(caller *v1alpha1.Requester) map[string]any {
	if caller == nil {
		caller = &v1alpha1.Requester{}
	}
	return map[string]any{"username": caller.Username, "uid": caller.UID, "groups": caller.Groups}
}

// action is the variable of that name. All texts and lists are there, empty where the action has none. Commands and modules that can't
// be found are missing, so that an expression that reads them fails.
func (s *Set) action(in *Input) (fields map[string]any, absent string) {
	a := in.Action
	fields = map[string]any{
		"type": string(a.Type), "tool": a.Tool(), "binary": a.Binary, "args": a.Args, "command": a.Command, "language": a.Language,
		"source": a.Source, "network": a.Network, "operation": "", "path": "", "destination": "",
		"commands": []any{}, "modules": []string{},
	}
	if a.File != nil {
		fields["operation"], fields["path"], fields["destination"] = string(a.File.Operation), a.File.Path, a.File.Destination
	}
	if s.commands {
		if err := addCommands(fields, a, in.Environment.Spec.Shell); err != nil {
			absent = ": action.commands isn't known: " + err.Error()
		}
	}
	if s.modules && a.Type == v1alpha1.ActionCode {
		if err := addModules(fields, a.Source, a.Language); err != nil {
			absent += ": action.modules isn't known: " + err.Error()
		}
	}
	return fields, absent
}

func addCommands(fields map[string]any, a *guards.Action, shell []string) error {
	var script string
	switch {
	case a.Type == v1alpha1.ActionStructured:
		fields["commands"] = []any{command(guards.Command{Name: a.Binary, Args: a.Args, Literal: true})}
		return nil
	case a.Type == v1alpha1.ActionShell:
		script = a.Command
	case a.Language == "bash" || a.Language == "sh":
		script, shell = a.Source, []string{a.Language}
	default:
		return nil
	}
	delete(fields, "commands")
	commands, err := guards.Commands(script, shell)
	if err != nil {
		return err
	}
	list := make([]any, 0, len(commands))
	for _, c := range commands {
		list = append(list, command(c))
	}
	fields["commands"] = list
	return nil
}

func command(c guards.Command) map[string]any {
	return map[string]any{"name": c.Name, "args": c.Args, "literal": c.Literal}
}

func addModules(fields map[string]any, source, language string) error {
	delete(fields, "modules")
	modules, err := guards.Modules(source, language)
	if err == nil {
		fields["modules"] = modules
	}
	return err
}

// tooLarge says what of a value is too large for rules, by its path below the value; empty for nothing.
func tooLarge(value any, depth int) (path, what string) {
	if depth > maxDepth {
		return "", fmt.Sprintf("nests deeper than %d levels", maxDepth)
	}
	switch v := value.(type) {
	case string:
		if len(v) > maxText {
			return "", fmt.Sprintf("has %d bytes, and rules read at most %d", len(v), maxText)
		}
	case []string:
		return tooLargeIn(len(v), func(i int) any { return v[i] }, at, depth)
	case []any:
		return tooLargeIn(len(v), func(i int) any { return v[i] }, at, depth)
	case map[string]string:
		return tooLargeIn(len(v), func(int) any { return nil }, at, depth)
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		return tooLargeIn(len(v), func(i int) any { return v[names[i]] }, func(i int) string { return "." + names[i] }, depth)
	}
	return "", ""
}

// at is the path of a list's element.
func at(i int) string { return "[" + strconv.Itoa(i) + "]" }

// tooLargeIn says what of a list or a map is too large.
func tooLargeIn(size int, element func(int) any, name func(int) string, depth int) (path, what string) {
	if size > maxElements {
		return "", fmt.Sprintf("has %d elements, and rules read at most %d", size, maxElements)
	}
	for i := range size {
		if path, what := tooLarge(element(i), depth+1); what != "" {
			return name(i) + path, what
		}
	}
	return "", ""
}

package decide

import (
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/guards"
)

// builtinInterpreters are used for languages that an environment doesn't set. The path of the source follows.
var builtinInterpreters = map[string][]string{
	"python": {"python3"},
	// Without the flag node resolves the source's path, which leads nowhere.
	"javascript": {"node", "--preserve-symlinks-main"},
	"bash":       {"bash"},
	"sh":         {"sh"},
	"ruby":       {"ruby"},
	"perl":       {"perl"},
}

// ArgvPrefix is the part of the command line that the environment decides.
func ArgvPrefix(env *v1alpha1.ExecutionEnvironmentSpec, action *guards.Action) ([]string, error) {
	switch action.Type {
	case v1alpha1.ActionShell:
		if len(env.Shell) > 0 {
			return env.Shell, nil
		}
		return []string{"bash", "-c"}, nil
	case v1alpha1.ActionCode:
		if prefix, ok := env.Interpreters[action.Language]; ok {
			return prefix, nil
		}
		if prefix, ok := builtinInterpreters[action.Language]; ok {
			return prefix, nil
		}
		return nil, Refuse(v1alpha1.ReasonInvalidEnvironment, "the environment has no interpreter for language %q: set spec.interpreters[%q] in the ExecutionEnvironment", action.Language, action.Language)
	default:
		return nil, nil
	}
}

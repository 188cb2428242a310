// Package decide holds the one function that decides about a call: may it run, where, with which command line,
// variables and limits.
//
// Input is a Snapshot of objects that somebody else has read, with the answer to the access review among them. The
// result is a whole Decision, or an error that says why there is none: a *Refusal ends the call, an *Undecided means
// that a question has no answer yet. The operator uses it, and kubectl toolcall check to say beforehand what the
// operator would decide.
//
// Invariants: the same snapshot gives the same result; a name that doesn't exist never falls back to something else;
// what isn't known refuses. The package must not talk to a cluster or read a clock.
package decide

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/spec"
)

// Snapshot is all that a decision depends on.
type Snapshot struct {
	Call *v1alpha1.ToolCall
	// Context holds the objects that the call's image, variables and directory come from. A call that names a session
	// has the session's Origin instead.
	Context
	// Session is the session that the call names.
	Session Session
	// Policies holds the policies that may apply.
	Policies Policies
	// Compile compiles a policy, the built-in defaults for nil; CompilePolicy when unset.
	Compile func(*v1alpha1.ExecutionPolicy) (*Policy, error)
	// Requester says whether spec.requestedBy and spec.trusted can be believed.
	Requester Requester
	// Access is the answer to the review whether the requester may use the call's tool.
	Access Access
}

// Requester says whether admission vouches for what a call says about its requester.
type Requester struct {
	Vouched bool
	// Missing names the admission policy that isn't in force, where it doesn't.
	Missing string
}

// Access is the answer to an access review. The zero value refuses.
type Access struct {
	Allowed bool
	// Err says why there is no answer.
	Err error
}

// Decision is everything that is decided about a call, once. Its stored part outlives the operator (see Encode); the
// rest builds the pod.
type Decision struct {
	// Environment is the name of the ExecutionEnvironment in effect.
	Environment string `json:"environment"`
	// ArgvPrefix is the shell or interpreter that the environment sets.
	ArgvPrefix []string `json:"argvPrefix,omitempty"`
	// Bounds hold for the process. A status keeps no more than MaxBytesPerStream of each stream.
	spec.Bounds
	// Network is what the command may connect to, without the addresses of the cluster; nil for a policy without network rules.
	Network *network.Rules `json:"network,omitempty"`
	// WeakPrograms says that the policy lists programs, and only compares names with the list.
	WeakPrograms bool `json:"weakPrograms,omitempty"`
	// Files are the policy's rules for a file action; nil for other calls.
	Files *spec.FileRules `json:"files,omitempty"`
	// Collect is what the policy says about the files that the call collects; nil for a call that collects none. The globs are
	// the call's own.
	Collect *spec.Collect `json:"collect,omitempty"`
	// StartTimeoutSeconds is how long the call may wait for its process to start.
	StartTimeoutSeconds int32 `json:"startTimeoutSeconds"`
	// CreatedMicroseconds and AcceptedMicroseconds are when the call was created and when it was decided about, since
	// the Unix epoch. Whoever asked for the decision sets them.
	CreatedMicroseconds  int64 `json:"createdMicroseconds"`
	AcceptedMicroseconds int64 `json:"acceptedMicroseconds"`
	// AssignedMicroseconds is when a session's call was handed over, since the Unix epoch.
	AssignedMicroseconds int64 `json:"assignedMicroseconds,omitempty"`
	// SessionEnv are variables of the call's session, under the call's own.
	SessionEnv []v1alpha1.CallEnvVar `json:"sessionEnv,omitempty"`
	// RuntimeClass is the runtimeClassName of the pod; empty for the cluster's default.
	RuntimeClass string `json:"runtimeClass,omitempty"`
	// Plan says how the variables and the directory are resolved in the pod.
	Plan envresolve.Plan `json:"plan"`
	// Approval is what a person has to decide before the call starts; nil for a call that needs no approval.
	Approval *Approval `json:"approval,omitempty"`

	// In is the environment object in effect, Default the namespace's default one (nil: there is none), Policy the
	// policy that was applied (nil: the built-in defaults). They are set only right after deciding.
	In, Default *v1alpha1.ExecutionEnvironment `json:"-"`
	Policy      *v1alpha1.ExecutionPolicy      `json:"-"`
	// Refs are the variables that the kubelet resolves in the pod, under internal names.
	Refs []corev1.EnvVar `json:"-"`
}

// Decide decides about a call. The error is a *Refusal or an *Undecided.
func Decide(s *Snapshot) (*Decision, error) {
	s = s.placed()
	decision, err := s.decide()
	var refusal *Refusal
	if env := s.Effective(); env != nil && errors.As(err, &refusal) {
		refusal.Environment = env.Name
	}
	return decision, err
}

func (s *Snapshot) decide() (*Decision, error) {
	action, unmapped := guards.Map(&s.Call.Spec)
	if edited := Edited(s.Call); edited != nil {
		return nil, edited
	}
	asked := s.request()
	if err := s.checkContext(asked); err != nil {
		return nil, err
	}
	env := s.Effective()
	object, policy, err := s.compilePolicy()
	if err != nil {
		return nil, err
	}
	if unmapped != nil {
		return nil, denied(unmapped)
	}
	if err := s.checkGuards(policy.Policy, action, asked.env); err != nil {
		return nil, err
	}
	prefix, err := argvPrefix(&env.Spec, action)
	if err != nil {
		return nil, err
	}
	asked.tool, asked.redact = action.Tool(), redacts(object)
	plan, refs := s.plan(asked, policy.EnvBlocklist())
	if err := s.checkPlan(&plan); err != nil {
		return nil, err
	}
	connections, denied, err := networkOf(object, action, s.Call)
	if err != nil {
		return nil, err
	}
	approval, err := s.judgeRules(policy, action)
	if err != nil {
		return nil, err
	}
	bounds := policy.Bounds()
	bounds.TimeoutMilliseconds, bounds.DenyNetwork, bounds.Rules = s.timeout(policy.Policy, action).Milliseconds(), denied, rulesOf(object, policy.Policy, action, prefix)
	return &Decision{
		Environment:         env.Name,
		Bounds:              bounds,
		WeakPrograms:        policy.HoldsPrograms() && policy.Enforcement() == v1alpha1.EnforcementName,
		Files:               fileRulesOf(object, action),
		Collect:             collectOf(object, policy.Policy, s.Call.Spec.Collect),
		ArgvPrefix:          prefix,
		Network:             connections,
		StartTimeoutSeconds: StartTimeoutSeconds(env),
		SessionEnv:          s.sessionEnv(),
		RuntimeClass:        ptr.Deref(env.Spec.RuntimeClassName, ""),
		Plan:                plan,
		Approval:            approval,
		In:                  env,
		Default:             s.DefaultEnvironment(),
		Policy:              object,
		Refs:                refs,
	}, nil
}

// checkContext says why there is no place to run the call in: its session, environment or skill.
func (s *Snapshot) checkContext(asked *request) error {
	if err := CheckSession(s); err != nil {
		return err
	}
	if s.Call.Spec.SessionRef != nil && s.Session.Origin == nil {
		return &Undecided{Cause: ErrNotBegun, Otherwise: deny(v1alpha1.ReasonGuardError, "%s", ErrNotBegun.Error())}
	}
	return s.check(asked)
}

// timeout is the limit of the process's wall-clock time; 0 for none. A server or watcher lives as long as its session, unless the policy
// bounds code.
func (s *Snapshot) timeout(policy *guards.Policy, action *guards.Action) time.Duration {
	if s.Call.Spec.Background && action.WantedTime == nil {
		return policy.MaxTime(action)
	}
	return policy.Timeout(action)
}

// checkGuards asks the guards. Under RBAC they take the snapshot's answer about access.
func (s *Snapshot) checkGuards(policy *guards.Policy, action *guards.Action, variables []v1alpha1.CallEnvVar) error {
	env := s.Effective()
	var unanswered error
	var requester *v1alpha1.Requester
	if s.Requester.Vouched {
		requester = s.Call.Spec.RequestedBy
	}
	denial := policy.Check(guards.Input{
		Action:    action,
		Env:       variables,
		Collect:   s.Call.Spec.Collect,
		Requester: requester,
		MayUse: func(string) (bool, error) {
			unanswered = s.Access.Err
			return s.Access.Allowed, unanswered
		},
		Shell: env.Spec.Shell,
	})
	switch {
	case unanswered != nil && denial != nil:
		otherwise := denied(denial)
		otherwise.Environment = env.Name
		return &Undecided{Cause: unanswered, Environment: env, Otherwise: otherwise}
	case denial != nil && denial.Reason == v1alpha1.ReasonEnvNotAllowed:
		return denied(s.ofSession(denial, policy, variables))
	case denial != nil:
		return denied(s.explain(denial))
	default:
		return nil
	}
}

// ofSession says of a protected variable that the call doesn't set itself that its session does.
func (s *Snapshot) ofSession(denial *guards.Denial, policy *guards.Policy, variables []v1alpha1.CallEnvVar) *guards.Denial {
	i := slices.IndexFunc(variables, func(v v1alpha1.CallEnvVar) bool { return policy.Protects(v.Name) })
	if i < 0 || slices.Contains(s.Call.Spec.Env, variables[i]) {
		return denial
	}
	denial.Message = fmt.Sprintf("the session %q sets the variable %s, which the policy's protectedEnv lists because it can change "+
		"which program runs: create a session without it", s.Call.Spec.SessionRef.Name, variables[i].Name)
	return denial
}

// explain adds to a denial for an unknown requester why nobody is known to have created the call.
func (s *Snapshot) explain(denial *guards.Denial) *guards.Denial {
	if denial.Reason == v1alpha1.ReasonAgentNotAllowed && s.Requester.Missing != "" {
		denial.Message += ". " + unknownRequester(s.Requester.Missing)
	}
	return denial
}

// unknownRequester says why nobody is known to have created a call.
func unknownRequester(missing string) string {
	return "The requester of this call is unknown, whatever its spec says, because an admission policy that checks it is not in force: " +
		missing + ". Install config/admission and create the call again."
}

// builtinInterpreters are used for languages that an environment doesn't set. The path of the source follows.
var builtinInterpreters = map[string][]string{
	"python":     {"python3"},
	"javascript": {"node"},
	"bash":       {"bash"},
	"sh":         {"sh"},
	"ruby":       {"ruby"},
	"perl":       {"perl"},
}

// argvPrefix is the part of the command line that the environment decides.
func argvPrefix(env *v1alpha1.ExecutionEnvironmentSpec, action *guards.Action) ([]string, error) {
	switch action.Type {
	case v1alpha1.ActionShell:
		if len(env.Shell) > 0 {
			return slices.Clone(env.Shell), nil
		}
		return []string{"bash", "-c"}, nil
	case v1alpha1.ActionCode:
		if prefix, ok := env.Interpreters[action.Language]; ok {
			return slices.Clone(prefix), nil
		}
		for _, key := range slices.Sorted(maps.Keys(env.Interpreters)) {
			if strings.ToLower(key) == action.Language {
				return nil, Refuse(v1alpha1.ReasonInvalidEnvironment, "spec.interpreters of the environment has the language %q, and languages are compared in lower case: write %q", key, action.Language)
			}
		}
		if prefix, ok := builtinInterpreters[action.Language]; ok {
			return slices.Clone(prefix), nil
		}
		if action.Language == guards.LanguageUnknown {
			return nil, Refuse(v1alpha1.ReasonInvalidEnvironment, "the call names no language, and nothing says what runs it: set the argument language")
		}
		return nil, Refuse(v1alpha1.ReasonInvalidEnvironment, "the environment has no interpreter for language %q: set spec.interpreters[%q] in the ExecutionEnvironment", action.Language, action.Language)
	default:
		return nil, nil
	}
}

// ReviewNeeded says whether the decision depends on an access review, and of which tool. Admission vouches for the
// requester; the rest of the snapshot is there.
func ReviewNeeded(s *Snapshot) (tool string, needed bool) {
	action, unmapped := guards.Map(&s.Call.Spec)
	s = s.placed()
	if unmapped != nil || s.checkContext(s.request()) != nil {
		return "", false
	}
	_, policy, err := s.compilePolicy()
	if err != nil || policy.Access() != v1alpha1.AccessRBAC {
		return "", false
	}
	return action.Tool(), true
}

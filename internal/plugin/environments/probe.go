package environments

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
)

const (
	toolShell = "bash"
	// unlisted is the name of no program and no language: what the operator says of it, it says of every one that isn't listed.
	unlisted = "toolcall-unlisted"
	// unseen stands for what nobody can say.
	unseen = "?"
)

// answer is what the operator said about one call.
type answer = subresourcesv1alpha1.ToolCallReviewStatus

// probe is what the operator says about one call of each kind, in an environment; nil where the user may not ask.
type probe struct {
	review                   func(context.Context, v1alpha1.ToolCallSpec) (*answer, error)
	program, language, shell *answer
	read, write              *answer
}

// probeAll reviews calls of each kind, once for each policy that environments name.
func probeAll(ctx context.Context, c *cli.Cluster, environments []v1alpha1.ExecutionEnvironment) (map[string]*probe, error) {
	probes := map[string]*probe{}
	for i := range environments {
		env := &environments[i]
		if _, done := probes[env.Spec.PolicyName()]; done {
			continue
		}
		p := &probe{review: func(ctx context.Context, call v1alpha1.ToolCallSpec) (*answer, error) {
			call.EnvironmentRef = &v1alpha1.LocalReference{Name: env.Name}
			return c.Review(ctx, subresourcesv1alpha1.ToolCallReviewSpec{Call: call})
		}}
		if err := p.fill(ctx); apierrors.IsForbidden(err) {
			p = nil
		} else if err != nil {
			return nil, err
		}
		probes[env.Spec.PolicyName()] = p
	}
	return probes, nil
}

func runProgram(name string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: name}}
}

func (p *probe) fill(ctx context.Context) (err error) {
	file := func(operation v1alpha1.FileOperation) v1alpha1.ToolCallSpec {
		return v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: operation, Path: unlisted}}
	}
	for _, one := range []struct {
		call v1alpha1.ToolCallSpec
		into **answer
	}{
		{runProgram(unlisted), &p.program},
		{v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: unlisted}}, &p.language},
		{v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "true"}}, &p.shell},
		{file(v1alpha1.FileStat), &p.read},
		{file(v1alpha1.FileMakeDirectory), &p.write},
	} {
		if *one.into, err = p.review(ctx, one.call); err != nil {
			return err
		}
	}
	return nil
}

// denialOf is why a call would not run, with what would pass instead; empty for one that would run.
func denialOf(a *answer) subresourcesv1alpha1.ReviewDenial {
	return ptr.Deref(a.Denial, subresourcesv1alpha1.ReviewDenial{})
}

// candidateTools are the tools that policies list, after those that need no name in a policy.
func candidateTools(probes map[string]*probe) []string {
	var listed []string
	for _, p := range probes {
		if p == nil {
			continue
		}
		listed = slices.Concat(listed, denialOf(p.program).Alternatives, denialOf(p.language).Alternatives)
	}
	slices.Sort(listed)
	return append([]string{toolShell, "python", guards.ToolFileRead, guards.ToolFileWrite}, slices.Compact(listed)...)
}

// usable is what a user with these rights may use, without what is the environment's.
func (p *probe) usable(ctx context.Context, rights *cli.Rights) (environmentTools, error) {
	used := environmentTools{Access: unseen, Programs: "none", Shell: "no", Languages: []string{}, Files: []string{}}
	used.Policy = "the cluster's default"
	if p == nil {
		used.Programs, used.Shell = unseen, unseen
		return used, nil
	}
	switch d := denialOf(p.program); {
	case p.program.Undecided != "":
		used.Problem, used.Programs, used.Shell = p.program.Undecided, unseen, unseen
		return used, nil
	case d.Phase == v1alpha1.PhaseFailed:
		used.Problem = d.Reason + ": " + d.Message
		return used, nil
	}
	used.Policy, used.Access = "the built-in defaults", string(v1alpha1.AccessRBAC)
	if p.program.Policy != "" {
		used.Policy = p.program.Policy + " (the cluster's default)"
	}
	if p.program.MayUse == nil {
		used.Access, rights = string(v1alpha1.AccessOpen), &cli.Rights{AnyTool: true, Complete: true}
	}
	if reason := denialOf(p.shell).Reason; p.shell.Undecided == "" && reason != v1alpha1.ReasonShellDisabled && reason != v1alpha1.ReasonAgentNotAllowed {
		used.Shell = "yes"
	}
	used.Languages, used.Files = p.languages(rights), p.files()
	var err error
	used.Programs, err = p.programs(ctx, rights)
	return used, err
}

// programs are those that the policy allows and the user may use.
func (p *probe) programs(ctx context.Context, rights *cli.Rights) (_ string, err error) {
	listed := denialOf(p.program).Alternatives
	switch {
	case p.program.Allowed:
		return "any", nil
	case len(listed) > 0:
		listed = slices.DeleteFunc(slices.Clone(listed), func(program string) bool {
			return !rights.May(program) && !hasPrefixOf(rights.Names, program)
		})
	case denialOf(p.program).Reason == v1alpha1.ReasonAgentNotAllowed:
		listed, err = p.ownPrograms(ctx, rights)
	}
	if err != nil {
		return "", err
	}
	if len(listed) == 0 {
		return "none", nil
	}
	return JoinFirst(listed), nil
}

// ownPrograms are the user's own where the policy lists none: then either every program may run, or none, which a review of one tells.
// A path may only run where it is listed. Rules come after the list, so that one which denies the program says that it passed the list.
func (p *probe) ownPrograms(ctx context.Context, rights *cli.Rights) ([]string, error) {
	own := slices.DeleteFunc(rights.Programs(), func(name string) bool { return strings.Contains(name, "/") })
	if len(own) == 0 {
		return nil, nil
	}
	a, err := p.review(ctx, runProgram(own[0]))
	if err != nil || !a.Allowed && denialOf(a).Reason != v1alpha1.ReasonDeniedByRule {
		return nil, err
	}
	return own, nil
}

// hasPrefixOf reports whether a name lies in a listed directory, which ends in a slash.
func hasPrefixOf(names []string, directory string) bool {
	return strings.HasSuffix(directory, "/") && slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, directory) })
}

// languages are those that the policy allows and the user may use; "any" for no bound.
func (p *probe) languages(rights *cli.Rights) []string {
	reason := denialOf(p.language).Reason
	switch {
	case reason == v1alpha1.ReasonLanguageNotAllowed:
		return slices.DeleteFunc(slices.Clone(denialOf(p.language).Alternatives), func(language string) bool { return !rights.May(language) })
	case reason == v1alpha1.ReasonCodeDisabled || p.language.Undecided != "":
		return []string{}
	case rights.AnyTool:
		return []string{"any"}
	default:
		return slices.DeleteFunc(slices.Clone(rights.Names), func(tool string) bool { return !slices.Contains(calls.Languages, tool) })
	}
}

// files are the kinds of file actions that the policy allows somewhere and the user may use.
func (p *probe) files() []string {
	kinds := []string{}
	if e := p.read.InEffect; e != nil && (e.ReadPaths == nil || len(e.ReadPaths) > 0 || e.WritePaths == nil) {
		kinds = append(kinds, "read")
	}
	if e := p.write.InEffect; e != nil && (e.WritePaths == nil || len(e.WritePaths) > 0) {
		kinds = append(kinds, "write")
	}
	return kinds
}

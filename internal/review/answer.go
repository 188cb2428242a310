package review

import (
	"slices"

	"k8s.io/utils/ptr"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/denials"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/network"
)

// describe says of a snapshot what an answer has whatever the verdict is.
func describe(s *decide.Snapshot) *subresourcesv1alpha1.ToolCallReviewStatus {
	status := &subresourcesv1alpha1.ToolCallReviewStatus{}
	if s.Requester.Vouched {
		status.Requester = s.Call.RequesterName()
	}
	if action, _ := guards.Map(&s.Call.Spec); action != nil {
		status.Tool = action.Tool()
	}
	if _, asked := decide.ReviewNeeded(s); asked && s.Requester.Vouched && s.Access.Err == nil {
		status.MayUse = ptr.To(s.Access.Allowed)
	}
	env := s.PolicyEnvironment()
	if env == nil {
		return status
	}
	status.Environment = env.Name
	policy, err := s.Policies.For(env)
	if err != nil {
		return status
	}
	if policy != nil {
		status.Policy = policy.Name
	}
	if compiled, err := s.Compile(policy); err == nil {
		status.Warnings = compiled.Warnings()
	}
	return status
}

// refused says that a call would be denied, or fail before it starts.
func refused(s *decide.Snapshot, refusal *decide.Refusal) *subresourcesv1alpha1.ToolCallReviewStatus {
	status := describe(s)
	if refusal.Reason == v1alpha1.ReasonSessionNotAllowed {
		// What holds in the session of somebody else isn't this user's to know.
		status.Policy, status.Warnings = "", nil
	}
	rule := denials.Rules()[refusal.Reason]
	status.Denial = &subresourcesv1alpha1.ReviewDenial{
		Phase: v1alpha1.PhaseFailed, Reason: refusal.Reason, Message: refusal.Message,
		Rule: rule.Field, RequesterCan: rule.Requester, OwnerCan: rule.Owner, Alternatives: refusal.Alternatives,
	}
	if refusal.Line > 0 {
		status.Denial.Position = &subresourcesv1alpha1.ReviewPosition{Line: int32(refusal.Line), Column: int32(refusal.Column)}
	}
	if refusal.Denied {
		status.Denial.Phase = v1alpha1.PhaseDenied
	}
	return status
}

// allowed says what would hold for a call.
func allowed(s *decide.Snapshot, d *decide.Decision) *subresourcesv1alpha1.ToolCallReviewStatus {
	var references []string
	for _, name := range d.Plan.NeededRefs() {
		references = append(references, name+"=")
	}
	// What the image sets, and where files are, only the pod knows.
	plan := d.Plan
	plan.FileDir = "/"
	resolved, err := envresolve.Resolve(&plan, references, func(name string) bool { return slices.Contains(references, name+"=") })
	if err != nil {
		return refused(s, decide.Refuse(v1alpha1.ReasonInvalidEnvironment, "%s", err.Error()))
	}
	status := describe(s)
	status.Allowed = true
	status.InEffect = &subresourcesv1alpha1.ReviewInEffect{
		ArgvPrefix: d.ArgvPrefix, WorkingDir: d.Plan.WorkingDir, AllowedPaths: d.Plan.AllowedPaths,
		MaxBytesPerStream: int64(d.MaxBytesPerStream), Network: networkOf(d), Programs: programsOf(s, d),
		StrippedEnv: resolved.Stripped, InheritMinimal: d.Plan.InheritMinimal, Trusted: d.Plan.Trusted,
	}
	e := status.InEffect
	if d.TimeoutMilliseconds > 0 {
		e.TimeoutMilliseconds = ptr.To(d.TimeoutMilliseconds)
	}
	switch {
	case d.Files != nil:
		e.ReadPaths, e.WritePaths = d.Files.ReadPaths, d.Files.WritePaths
	case d.Rules != nil:
		e.ReadPaths, e.WritePaths = d.Rules.ReadPaths, d.Rules.WritePaths
	}
	if e.ReadPaths != nil {
		// What may be written may be read.
		e.ReadPaths = append(append([]string{}, e.ReadPaths...), e.WritePaths...)
	}
	for _, v := range resolved.Vars {
		e.Variables = append(e.Variables, subresourcesv1alpha1.ReviewVariable{Name: v.Name, Source: v1alpha1.EnvSource(v.Source)})
	}
	e.RunnerEnv = runnerEnv(&d.Plan, resolved.Vars)
	if a := d.Approval; a != nil {
		status.Approval = &subresourcesv1alpha1.ReviewApproval{
			Causes: a.Causes, Messages: a.Messages, Approvers: a.Approvers, Minimum: a.Minimum, ExpiresSeconds: a.ExpiresSeconds,
		}
	}
	return status
}

// runnerEnv are the variables that the runner sets where no other source does.
func runnerEnv(plan *envresolve.Plan, set []envresolve.ResolvedVar) []string {
	untrusted := *plan
	untrusted.Trusted = false
	return slices.DeleteFunc([]string{"HOME", "PYTHONUNBUFFERED"}, func(name string) bool {
		isSet := slices.ContainsFunc(set, func(v envresolve.ResolvedVar) bool { return v.Name == name })
		return isSet || untrusted.Blocks(name)
	})
}

// networkOf is what a call could connect to.
func networkOf(d *decide.Decision) subresourcesv1alpha1.ReviewNetwork {
	switch rules := d.Network; {
	case d.DenyNetwork:
		return subresourcesv1alpha1.ReviewNetwork{Held: v1alpha1.HeldNetworkNone}
	case rules == nil:
		return subresourcesv1alpha1.ReviewNetwork{Held: v1alpha1.HeldNetworkPod}
	default:
		return subresourcesv1alpha1.ReviewNetwork{
			Held: v1alpha1.HeldNetworkHeld, Hosts: decide.ReachableHosts(rules),
			IsOpen: rules.Mode == network.Open && len(rules.Hosts) == 0, InCluster: rules.AllowInCluster,
		}
	}
}

// programsOf says what holds the programs that a call starts.
func programsOf(s *decide.Snapshot, d *decide.Decision) subresourcesv1alpha1.ReviewPrograms {
	if d.Rules != nil && d.Rules.Programs != nil {
		p := d.Rules.Programs
		return subresourcesv1alpha1.ReviewPrograms{
			Held: subresourcesv1alpha1.ProgramsHeldKernel, Allowed: p.Allowed, Own: p.Own, MultiCall: p.AllowMultiCall, Writable: p.AllowWritable,
		}
	}
	none := subresourcesv1alpha1.ReviewPrograms{Held: subresourcesv1alpha1.ProgramsHeldNone}
	action, err := guards.Map(&s.Call.Spec)
	if err != nil || d.Policy == nil {
		return none
	}
	binaries := ptr.Deref(d.Policy.Spec.Binaries, v1alpha1.BinariesPolicy{})
	shell := ptr.Deref(d.Policy.Spec.Shell, v1alpha1.ShellPolicy{})
	isEnforced := binaries.Mode == v1alpha1.BinariesEnforced
	switch {
	case action.Type == v1alpha1.ActionStructured && isEnforced,
		action.Type == v1alpha1.ActionShell && shell.Commands == v1alpha1.ShellAllowlisted && (isEnforced || len(binaries.Allowed) > 0):
		return subresourcesv1alpha1.ReviewPrograms{Held: subresourcesv1alpha1.ProgramsHeldName, Allowed: binaries.Allowed}
	case action.Type == v1alpha1.ActionStructured && len(binaries.Allowed) > 0:
		return subresourcesv1alpha1.ReviewPrograms{Held: subresourcesv1alpha1.ProgramsHeldCallOnly, Allowed: binaries.Allowed}
	default:
		return none
	}
}

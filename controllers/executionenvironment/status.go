package executionenvironment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// writeStatus writes the environment's status if it changed. Counts wait until countDelay has passed since the last
// write; wait says for how long.
func (r *Reconciler) writeStatus(ctx context.Context, p *pool, in *inputs) (wait time.Duration, err error) {
	env, ready := p.env, r.judge(p, in)
	active := &v1alpha1.ToolCallList{}
	if err := r.Objects.List(ctx, active, client.InNamespace(env.Namespace), client.MatchingFields{apicache.IndexActive: env.Name}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return 0, fmt.Errorf("list active calls: %w", err)
	}
	after := env.DeepCopy()
	ready.ObservedGeneration = env.Generation
	meta.SetStatusCondition(&after.Status.Conditions, ready)
	after.Status.ObservedGeneration = env.Generation
	urgent := !equality.Semantic.DeepEqual(env.Status, after.Status)
	after.Status.ActiveCalls = int32(len(active.Items))
	r.setWarm(after, p)
	metrics.SetEnvironment(client.ObjectKeyFromObject(env), stateOf(after))
	urgent = urgent || podsFail(env) != podsFail(after)
	if equality.Semantic.DeepEqual(env.Status, after.Status) {
		return 0, nil
	}
	if left := p.backoff.written.Add(countDelay).Sub(p.now); left > 0 && !urgent {
		return left, nil
	}
	p.backoff.written = p.now
	err = r.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(env, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("write the environment's status: %w", err)
	}
	return 0, nil
}

// stateOf is what metrics show of an environment.
func stateOf(env *v1alpha1.ExecutionEnvironment) metrics.State {
	state := metrics.State{Ready: meta.IsStatusConditionTrue(env.Status.Conditions, v1alpha1.ConditionReady)}
	if warm := env.Status.Warm; warm != nil {
		state.PoolReady, state.PoolDesired = warm.Ready, warm.Desired
	}
	return state
}

// podsFail says that the environment's status says that its pool's pods don't start.
func podsFail(env *v1alpha1.ExecutionEnvironment) bool {
	c := meta.FindStatusCondition(env.Status.Conditions, v1alpha1.ConditionWarm)
	return c != nil && c.Reason == v1alpha1.ReasonPodsFail
}

// setWarm writes how the environment's pool does.
func (r *Reconciler) setWarm(env *v1alpha1.ExecutionEnvironment, p *pool) {
	if host.PoolSize(env) == 0 {
		env.Status.Warm = nil
		meta.RemoveStatusCondition(&env.Status.Conditions, v1alpha1.ConditionWarm)
		return
	}
	env.Status.Warm = &v1alpha1.WarmStatus{Ready: int32(r.Hosts.Waiting(p.hash)), Desired: host.PoolSize(env), Selector: jobspec.PoolSelector(env)}
	condition := metav1.Condition{Type: v1alpha1.ConditionWarm, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: "Pods wait for calls", ObservedGeneration: env.Generation}
	switch problem := p.backoff.problem; {
	case problem != "":
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonPodsFail, bounds.Text(problem, v1alpha1.MaxMessageBytes)
	case env.Status.Warm.Ready == 0:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonFilling, "Pods are being started"
	}
	meta.SetStatusCondition(&env.Status.Conditions, condition)
}

// judge says whether calls can run in the environment.
func (r *Reconciler) judge(p *pool, in *inputs) metav1.Condition {
	env := p.env
	no := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: bounds.Text(message, v1alpha1.MaxMessageBytes)}
	}
	// A call that names another environment fails too: it would get the default's variables.
	if message := decide.DuplicateDefault(in.Defaults); message != "" {
		return no(v1alpha1.ReasonDuplicateDefault, message)
	}
	policy, err := in.policies.For(env)
	var refusal *decide.Refusal
	switch {
	case errors.As(err, &refusal) && env.Spec.PolicyName() == "":
		return no(v1alpha1.ReasonDuplicateDefault, refusal.Message)
	case errors.As(err, &refusal):
		return no(v1alpha1.ReasonPolicyNotFound, refusal.Message)
	}
	compiled, err := r.Policies.Compile(policy)
	if err != nil {
		return no(v1alpha1.ReasonInvalidPolicy, "the policy does not compile: "+err.Error())
	}
	held := decide.RulesOf(policy, compiled)
	if held != nil {
		if problem := r.isolationProblem(p, held); problem != "" {
			return no(v1alpha1.ReasonIsolationUnavailable, problem)
		}
	}
	if found := r.startProblem(p); found != nil {
		return no(found.Reason, found.Message)
	}
	message := bounds.Text(cmp.Or(p.unheld, r.appletsNote(p, held), "Calls can run"), v1alpha1.MaxMessageBytes)
	if env.Spec.Suspend {
		message = "The environment is suspended: no new call starts"
	}
	return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: message}
}

// startProblem is why the environment's last pod couldn't start; nil when it could, or none is known. After a restart of the
// operator the status has it, until a runner connects.
func (r *Reconciler) startProblem(p *pool) *host.Problem {
	name := client.ObjectKeyFromObject(p.env)
	if found := r.Nodes.Problem(name); found != nil {
		return &host.Problem{Reason: found.Reason, Message: "The last pod didn't start: " + found.Message}
	}
	last := meta.FindStatusCondition(p.env.Status.Conditions, v1alpha1.ConditionReady)
	if last == nil || !host.IsEnvironments(last.Reason) || last.ObservedGeneration != p.env.Generation || len(r.Nodes.Of(name, p.now)) > 0 {
		return nil
	}
	return &host.Problem{Reason: last.Reason, Message: last.Message}
}

// isolationProblem says which nodes can't hold a policy's rules, as the environment's runners found out; empty when none
// is known. What was found last stays in the status until a runner connects, or the environment changes.
func (r *Reconciler) isolationProblem(p *pool, held *rules.Rules) string {
	nodes := r.Nodes.Of(client.ObjectKeyFromObject(p.env), p.now)
	applets := r.Nodes.Applets(client.ObjectKeyFromObject(p.env), held).Unheld
	last := meta.FindStatusCondition(p.env.Status.Conditions, v1alpha1.ConditionReady)
	if len(nodes) == 0 && len(applets) == 0 && last != nil && last.Reason == v1alpha1.ReasonIsolationUnavailable && last.ObservedGeneration == p.env.Generation {
		return last.Message
	}
	lacking := slices.DeleteFunc(slices.Clone(nodes), func(n host.Node) bool { return n.Support.Missing(held) == "" })
	if len(lacking) == 0 && len(applets) > 0 && !held.Programs.AllowMultiCall {
		return fmt.Sprintf("%s lists programs, and its list can't be enforced in this image: %s. Calls that may start one don't start. "+
			"Use programs that execute their applets, or set binaries.multiCall to Allow", policyName(held), unheldApplets(applets))
	}
	if len(lacking) == 0 {
		return ""
	}
	for _, node := range lacking {
		p.wakeIn(node.Until.Sub(p.now))
	}
	return fmt.Sprintf("%s has the kernel hold what calls do, and %d of %d nodes that runners were on lately can't: %s gives no %s. "+
		"Use other nodes or another runtimeClassName, or change the policy: set %s",
		policyName(held), len(lacking), len(nodes), cmp.Or(lacking[0].Name, "one"), lacking[0].Support.Missing(held), lacking[0].Support.WayOut(held))
}

// appletsNote says which programs of the image run what isn't listed, where the policy permits it, and of which the kernel can't tell the
// names apart; empty when none is known.
func (r *Reconciler) appletsNote(p *pool, held *rules.Rules) string {
	if held == nil {
		return ""
	}
	applets := r.Nodes.Applets(client.ObjectKeyFromObject(p.env), held)
	var notes []string
	if len(applets.Unheld) > 0 {
		notes = append(notes, unheldApplets(applets.Unheld)+", so to list one of them is to list all")
	}
	namesOnly := slices.DeleteFunc(applets.NamesOnly, func(path string) bool { return slices.Contains(applets.Unheld, path) })
	if len(namesOnly) > 0 {
		notes = append(notes, "names of "+quotedPaths(namesOnly)+
			" of the image are only looked at: each is one file for the kernel, which can't tell its names apart")
	}
	if len(notes) == 0 {
		return ""
	}
	return v1alpha1.MessageReadyBut + strings.Join(notes, "; ")
}

func unheldApplets(programs []string) string {
	return quotedPaths(programs) + " of the image runs its applets without executing them"
}

func quotedPaths(paths []string) string {
	quoted := make([]string, len(paths))
	for i, path := range paths {
		quoted[i] = strconv.Quote(path)
	}
	return strings.Join(quoted, ", ")
}

// policyName names the policy of rules; that of an environment without one has no name.
func policyName(held *rules.Rules) string {
	if held.Policy == "" {
		return "the policy"
	}
	return fmt.Sprintf("policy %q", held.Policy)
}

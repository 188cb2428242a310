package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/docurl"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/kubeversion"
	"toolcall.dev/operator/internal/plugin/environments"
	"toolcall.dev/operator/internal/version"
)

func (d *doctor) checkOperator(context.Context) []finding {
	if d.operatorErr != nil {
		return unseenFinding("list deployments in namespace "+d.namespace, adviceAdmin, d.operatorErr)
	}
	deployment := d.operator
	if deployment == nil {
		return problem(adviceInstall, "no operator was found: namespace %s has no Deployment with the label %s=%s", d.namespace, labelName, operatorLabel)
	}
	where := deployment.Namespace + "/" + deployment.Name
	wanted, available := ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status.AvailableReplicas
	advice := "look at its pods: kubectl describe pods -n " + deployment.Namespace + " -l " + labelName + "=" + operatorLabel
	switch {
	case wanted == 0:
		return problem("scale it up: kubectl scale deployment -n "+deployment.Namespace+" "+deployment.Name+" --replicas=2", "Deployment %s has no replicas: no call starts or ends", where)
	case available == 0:
		return problem(advice, "Deployment %s has no available replica: no call starts or ends", where)
	case available < wanted:
		return []finding{found(stateWarning, fmt.Sprintf("Deployment %s: %d of %d replicas are available", where, available, wanted), advice)}
	}
	return healthy("Deployment %s: %d of %d replicas are available", where, available, wanted)
}

func (d *doctor) checkVersion(ctx context.Context) []finding {
	operator, err := operatorVersion(ctx, d.Cluster)
	if err != nil {
		return []finding{found(stateUnknown, "plugin "+version.String()+"; the operator's version can't be found out: "+err.Error(), adviceAdmin)}
	}
	own, ownErr := utilversion.ParseSemantic(version.String())
	theirs, theirsErr := utilversion.ParseSemantic(operator)
	switch {
	case operator == version.String():
	case ownErr != nil || theirsErr != nil:
		return healthy("plugin %s, operator %s: builds that aren't releases, which can't be compared", version.String(), operator)
	case own.Major() != theirs.Major() || own.Minor() != theirs.Minor():
		return []finding{found(stateWarning, fmt.Sprintf("plugin %s, operator %s", version.String(), operator), "install the plugin of the operator's release, or upgrade the operator: other versions can lack flags and fields")}
	}
	return healthy("plugin %s, operator %s", version.String(), operator)
}

// checkStore looks for the output store that is installed beside the operator, or for one that the operator is told about.
func (d *doctor) checkStore(ctx context.Context) []finding {
	list := &appsv1.StatefulSetList{}
	if err := d.Client.List(ctx, list, client.InNamespace(d.namespace), client.MatchingLabels{labelName: storeLabel}); err != nil {
		return unseenFinding("list statefulsets in namespace "+d.namespace, adviceAdmin, err)
	}
	if len(list.Items) == 0 {
		return d.checkOtherStore()
	}
	store := &list.Items[0]
	if store.Status.ReadyReplicas == 0 {
		return problem("look at its pod and its claim: kubectl describe pods,pvc -n "+d.namespace+" -l "+labelName+"="+storeLabel, "StatefulSet %s/%s is not ready: output that a status leaves out is lost after five minutes", d.namespace, store.Name)
	}
	return healthy("StatefulSet %s/%s is ready", d.namespace, store.Name)
}

func (d *doctor) checkOtherStore() []finding {
	if location := d.operatorFlag("output-store"); location != "" {
		return healthy("the operator keeps output in %s; whether that is reachable, calls say in their condition OutputStored", location)
	}
	return []finding{found(stateWarning, "no output store: output that a status leaves out goes with the pod of its call", "install one, or set the operator's flag --output-store: "+docurl.Page("output.md")+" says how")}
}

// operatorFlag is a flag that the operator is given, empty for none, and if the operator can't be seen.
func (d *doctor) operatorFlag(name string) (value string) {
	if d.operator == nil {
		return ""
	}
	for _, container := range d.operator.Spec.Template.Spec.Containers {
		for _, arg := range container.Args {
			if given, ok := strings.CutPrefix(strings.TrimLeft(arg, "-"), name+"="); ok {
				value = given
			}
		}
	}
	return value
}

func (d *doctor) checkEnvironments(ctx context.Context) []finding {
	list := &v1alpha1.ExecutionEnvironmentList{}
	if err := d.Client.List(ctx, list, client.InNamespace(d.environmentNamespace())); err != nil {
		return d.unlisted("executionenvironments", "to see them, have the ClusterRole toolcall-environment-viewer bound to you", err)
	}
	if len(list.Items) == 0 {
		return []finding{found(stateWarning, "there are no environments "+d.where()+": calls need one to run in", "create an ExecutionEnvironment: "+docurl.Page("reference/executionenvironment.md")+" has its fields; or choose another namespace with -n")}
	}
	var all []finding
	for i := range list.Items {
		all = append(all, environmentFinding(&list.Items[i]))
	}
	return append(all, sharedUsers(list.Items, d.countedUsers())...)
}

// countedUsers says which user of the node the kernel counts what an environment's calls use for.
type countedUsers struct {
	// defaults are the users of environments that name none; nil if they can't be seen.
	defaults *jobspec.UserRange
	// ownInNamespaces says that every node counts what is in a pod's user namespace for the pod alone, and not for root too.
	ownInNamespaces bool
}

func (d *doctor) countedUsers() countedUsers {
	counted := countedUsers{ownInNamespaces: true}
	if users, err := jobspec.ParseUserRange(d.operatorFlag("user-ids")); d.operator != nil && err == nil {
		counted.defaults = &users
	}
	for i := range d.nodes {
		counted.ownInNamespaces = counted.ownInNamespaces && kubeversion.HasOwnLimits(&d.nodes[i].Status.NodeInfo)
	}
	return counted
}

// of returns nil if the user isn't known, or the pods have users of their own.
func (c countedUsers) of(env *v1alpha1.ExecutionEnvironment) *int64 {
	switch pod, container := env.Spec.PodSecurityContext, env.Spec.SecurityContext; {
	case !ptr.Deref(env.Spec.HostUsers, true) && c.ownInNamespaces:
		return nil
	case !ptr.Deref(env.Spec.HostUsers, true):
		return new(int64(0))
	case container != nil && container.RunAsUser != nil:
		return container.RunAsUser
	case pod != nil && pod.RunAsUser != nil:
		return pod.RunAsUser
	case c.defaults != nil:
		return new(c.defaults.UserOf(env.Namespace))
	default:
		return nil
	}
}

// sharedUsers warns of namespaces whose calls the kernel counts for the same user of the node: of what it bounds for each user, such
// as inotify instances, one of them can use up everything.
func sharedUsers(list []v1alpha1.ExecutionEnvironment, counted countedUsers) []finding {
	sharing := map[int64]map[string]bool{}
	for i := range list {
		env := &list[i]
		user := counted.of(env)
		if user == nil {
			continue
		}
		if sharing[*user] == nil {
			sharing[*user] = map[string]bool{}
		}
		sharing[*user][env.Namespace] = true
	}
	const where = "security.md#limits-that-the-kernel-counts-for-a-user"
	var all []finding
	for _, user := range slices.Sorted(maps.Keys(sharing)) {
		namespaces := slices.Sorted(maps.Keys(sharing[user]))
		switch {
		case user == 0:
			all = append(all, found(stateWarning, "calls count as root of their node, by runAsUser: 0 or by hostUsers: false before containerd "+kubeversion.OwnLimits+", and share the kernel's limits for a user with the node's services: namespaces "+environments.JoinFirst(namespaces),
				"let calls that aren't trusted run as another user: "+docurl.Page(where)))
		case len(namespaces) > 1:
			all = append(all, found(stateWarning, fmt.Sprintf("environments of %d namespaces run as user %d of the node, and share the kernel's limits for a user", len(namespaces), user),
				"where tenants don't trust each other, set the operator's flag --user-ids, or another podSecurityContext.runAsUser in each namespace: "+docurl.Page(where)))
		}
	}
	return all
}

// unlisted is what a failed list of one of the project's kinds tells.
func (d *doctor) unlisted(resource, advice string, err error) []finding {
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return problem(adviceInstall, "the cluster has no %s", resource)
	}
	return unseenFinding("list "+resource, advice, err)
}

func (d *doctor) where() string {
	if d.allNamespaces {
		return "in any namespace"
	}
	return "in namespace " + d.Namespace
}

func environmentFinding(env *v1alpha1.ExecutionEnvironment) finding {
	name := env.Namespace + "/" + env.Name
	switch why := environments.NotReady(env); {
	case why != "":
		return found(stateProblem, name+" is not ready: "+why, environmentAdvice(env))
	case meta.FindStatusCondition(env.Status.Conditions, v1alpha1.ConditionReady) == nil:
		return found(stateProblem, name+" has no status", "the operator hasn't looked at it: see what doctor says about the operator, and whether it works in this namespace")
	case env.Spec.Suspend:
		return found(stateWarning, name+" is suspended: no new call starts in it", "when the reason is gone, run kubectl toolcall env resume "+env.Name+" -n "+env.Namespace)
	case environments.ReadyBut(env) != "":
		return found(stateWarning, name+": "+environments.ReadyBut(env), "remove the cause that the message names, or run only trusted calls there: see kubectl toolcall env describe "+env.Name+" -n "+env.Namespace)
	case env.Status.Warm != nil && env.Status.Warm.Ready < env.Status.Warm.Desired:
		return found(stateWarning, fmt.Sprintf("%s is ready, with %s warm pods", name, environments.Warm(env)), "if that lasts, look at kubectl toolcall env describe "+env.Name+" -n "+env.Namespace)
	default:
		return found(stateOK, name+" is ready", "")
	}
}

// environmentAdvice says what to do about the reason for which an environment isn't ready.
func environmentAdvice(env *v1alpha1.ExecutionEnvironment) string {
	switch meta.FindStatusCondition(env.Status.Conditions, v1alpha1.ConditionReady).Reason {
	case v1alpha1.ReasonDuplicateDefault:
		return "keep the annotation " + v1alpha1.AnnotationDefaultEnvironment + " on one environment of the namespace"
	case v1alpha1.ReasonPolicyNotFound:
		return "create the ExecutionPolicy, or correct spec.policyRef of the environment"
	case v1alpha1.ReasonIsolationUnavailable:
		return "run it on nodes with Landlock (Linux 5.13 or newer, with lsm=landlock), or change the policy as the message says"
	default:
		return "correct what the message names: kubectl toolcall env describe " + env.Name + " -n " + env.Namespace
	}
}

func (d *doctor) checkPolicies(ctx context.Context) []finding {
	list := &v1alpha1.ExecutionPolicyList{}
	if err := d.Client.List(ctx, list); err != nil {
		return d.unlisted("executionpolicies", "to see them, have the ClusterRole toolcall-policy-viewer bound to you with a ClusterRoleBinding", err)
	}
	var all []finding
	for i := range list.Items {
		policy := &list.Items[i]
		switch c := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionReady); {
		case c != nil && c.Status == metav1.ConditionFalse:
			all = append(all, found(stateProblem, policy.Name+" can't be used: "+c.Reason+": "+c.Message, "correct the field: calls under it end with InvalidPolicy"))
		case environments.Weakness(policy) != "":
			all = append(all, found(stateWarning, policy.Name+" is weaker than it looks: "+environments.Weakness(policy), "change the policy, if that isn't meant so"))
		}
	}
	if len(all) == 0 {
		return healthy("%d policies", len(list.Items))
	}
	return all
}

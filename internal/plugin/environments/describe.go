package environments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/policy"
)

const envDescribeLong = `Show the details of environments: whether calls can run in them and why not, their image, policy, limits, variables and
secrets (names and sources, never values), conditions and Events.

What the policy allows is shown if you have permission to list policies. "kubectl toolcall tools" shows what of it you may use.

-o prints the environments themselves. The exit code is 0 whatever the state of the environments, and 1 if one can't be read.`

func newEnvDescribe(c *cli.CLI) *cobra.Command {
	formats := cli.NewFormats()
	return formats.Add(&cobra.Command{
		Use:               "describe NAME...",
		Short:             "Show the details of environments",
		Long:              envDescribeLong,
		Example:           "  kubectl toolcall env describe tools",
		Args:              cli.RequireEnvironments,
		ValidArgsFunction: c.CompleteArguments(-1, cli.ListEnvironments),
		RunE: c.Connected(func(ctx context.Context, cluster *cli.Cluster, args []string) error {
			list, failed := environments(ctx, cluster, args)
			switch {
			case len(list.Items) == 0:
				return failed
			case formats.IsObject() && len(args) == 1:
				return formats.Print(c.Out, &list.Items[0])
			case formats.IsObject():
				return errors.Join(formats.Print(c.Out, list), failed)
			}
			policies, now := policy.ReadSet(ctx, cluster.Asker), time.Now()
			for i := range list.Items {
				if i > 0 {
					fmt.Fprintln(c.Out)
				}
				if err := describeEnvironment(c.Out, policies, &list.Items[i], now); err != nil {
					return err
				}
				if err := cluster.WriteEvents(ctx, &list.Items[i], now); err != nil {
					return err
				}
			}
			return failed
		}),
	})
}

// environments reads environments by their names. With an error, it returns those that were read. One that isn't there doesn't keep the
// next from being read: another error would be theirs too.
func environments(ctx context.Context, c *cli.Cluster, names []string) (*v1alpha1.ExecutionEnvironmentList, error) {
	list, failed := &v1alpha1.ExecutionEnvironmentList{}, []error{}
	for _, name := range names {
		env := v1alpha1.ExecutionEnvironment{}
		err := c.Client.Get(ctx, c.Key(name), &env)
		if err == nil {
			list.Items = append(list.Items, env)
			continue
		}
		failed = append(failed, c.Explain("get", "executionenvironments", "environment "+name, err))
		if !cli.IsMissing(err) {
			break
		}
	}
	return list, errors.Join(failed...)
}

func describeEnvironment(out io.Writer, policies *policy.Set, env *v1alpha1.ExecutionEnvironment, now time.Time) error {
	d := cli.NewDescription(out)
	d.Section("", environmentSummary(policies, env, now))
	d.Section("Limits", environmentLimits(&env.Spec))
	d.Section("Pod", environmentPod(&env.Spec))
	d.Section("Variables", environmentVariables(env.Spec.Env))
	d.Section("Secrets", environmentSecrets(env.Spec.Secrets))
	d.Section("Conditions", cli.ConditionFields(env.Status.Conditions, v1alpha1.ConditionReady, v1alpha1.ConditionWarm))
	return d.Flush()
}

// environmentSummary says whether calls can run in an environment, and what it allows.
func environmentSummary(policies *policy.Set, env *v1alpha1.ExecutionEnvironment, now time.Time) []cli.Field {
	all := []cli.Field{
		{"Name", env.Name}, {"Namespace", env.Namespace}, {"Age", duration.HumanDuration(now.Sub(env.CreationTimestamp.Time))},
		{"Default", isDefault(env)}, {"Ready", ready(env)}, {"Not ready", NotReady(env)}, {"Warning", ReadyBut(env)},
		{"Suspended", map[bool]string{true: "yes: no new call starts; kubectl toolcall env resume " + env.Name + " lets them"}[env.Spec.Suspend]},
		{"Image", env.Spec.Image}, {"Policy", policyOf(policies, env)}, {"Allows", allows(policies, env)},
	}
	if policy, err := policies.For(env); err == nil {
		all = append(all, cli.Field{"Network", policyNetwork(policy)}, cli.Field{"Weak", Weakness(policy)})
	}
	return append(all, cli.Field{"Active calls", fmt.Sprint(env.Status.ActiveCalls)}, cli.Field{"Warm pods", Warm(env)})
}

// policyOf is the name of the policy that applies to an environment, as far as it is known.
func policyOf(policies *policy.Set, env *v1alpha1.ExecutionEnvironment) string {
	if name := env.Spec.PolicyName(); name != "" {
		return name
	}
	policy, err := policies.For(env)
	switch {
	case err != nil:
		return "the cluster's default"
	case policy == nil:
		return "the built-in defaults"
	default:
		return policy.Name + " (the cluster's default)"
	}
}

func environmentLimits(spec *v1alpha1.ExecutionEnvironmentSpec) []cli.Field {
	return []cli.Field{
		{"Calls at the same time", cli.Optional("%d", spec.MaxConcurrentCalls)}, {"Start within", cli.Optional("%ds", spec.StartTimeoutSeconds)},
		{"Keep finished calls", cli.Optional("%ds", spec.TTLSecondsAfterFinished)}, {"Queues", strings.Join(spec.Queues, ", ")},
		{"Sessions", sessionLimits(spec.Sessions)},
	}
}

// sessionLimits says how many sessions of an environment may have a pod at the same time; empty for no limit.
func sessionLimits(limits *v1alpha1.SessionLimits) string {
	switch {
	case limits == nil || limits.Max == nil && limits.MaxPerCaller == nil:
		return ""
	case limits.Max == nil:
		return fmt.Sprintf("%d of each requester", *limits.MaxPerCaller)
	case *limits.Max == 0:
		return "none"
	case limits.MaxPerCaller == nil:
		return fmt.Sprint(*limits.Max)
	default:
		return fmt.Sprintf("%d, and %d of each requester", *limits.Max, *limits.MaxPerCaller)
	}
}

func environmentPod(spec *v1alpha1.ExecutionEnvironmentSpec) []cli.Field {
	return []cli.Field{
		{"Directory", spec.WorkingDir}, {"Allowed paths", strings.Join(spec.AllowedPaths, ", ")}, {"Shell", cli.Quoted(spec.Shell)},
		{"Languages", strings.Join(slices.Sorted(maps.Keys(spec.Interpreters)), ", ")}, {"Runtime class", ptr.Deref(spec.RuntimeClassName, "")},
		{"Service account", spec.ServiceAccountName}, {"Priority class", spec.PriorityClassName},
	}
}

// environmentVariables are the names of variables, and where their values come from.
func environmentVariables(env []v1alpha1.EnvVar) []cli.Field {
	var all []cli.Field
	for i := range env {
		source := "a value"
		switch from := env[i].ValueFrom; {
		case from == nil:
		case from.SecretKeyRef != nil:
			source = secretKey(from.SecretKeyRef)
		case from.ConfigMapKeyRef != nil:
			source = fmt.Sprintf("key %s of ConfigMap %s", from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Name)
		case from.FieldRef != nil:
			source = "field " + from.FieldRef.FieldPath + " of the pod"
		}
		all = append(all, cli.Field{env[i].Name, source})
	}
	return all
}

// environmentSecrets are the names of secrets, where their values come from, and the tools whose calls get them.
func environmentSecrets(secrets []v1alpha1.ToolSecret) []cli.Field {
	var all []cli.Field
	for i := range secrets {
		s := &secrets[i]
		text := secretKey(&s.SecretKeyRef)
		if s.As == v1alpha1.SecretAsFile {
			text += ", as a file"
		}
		text += ", for " + strings.Join(s.Tools, ", ")
		if !ptr.Deref(s.Redact, true) {
			text += "; not redacted"
		}
		all = append(all, cli.Field{s.Name, text})
	}
	return all
}

// secretKey names a key of a Secret.
func secretKey(ref *corev1.SecretKeySelector) string {
	return fmt.Sprintf("key %s of Secret %s", ref.Key, ref.Name)
}

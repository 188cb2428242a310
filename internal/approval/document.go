// Package approval says what a person approves, and which decisions about a call count.
//
// What will happen is a document: the call's spec and its decision, with the environment, the session, the skill and the policy that
// they come from. All of their fields are part of it but those that are left out here by name, so that a field which is added to
// one of them is bound by an approval from the beginning. The digest is the SHA-256 of the document's canonical JSON (RFC 8785).
//
// The package is pure: it reads no cluster and no clock.
package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/guards"
)

// notBound is what the summary says of itself: the one thing that decides what happens and that no digest can have.
const notBound = "the content of files that the action reads or runs"

// Summary is what will happen, as canonical JSON of at most v1alpha1.MaxApprovalSummaryBytes bytes, and its digest. The snapshot is
// what the decision was made from, with the whole call. asked is when the decision was asked for: another request has another digest,
// so that an approval serves the request that it was made for.
func Summary(s *decide.Snapshot, d *decide.Decision, asked time.Time) (summary, digest string, err error) {
	action, unmapped := guards.Map(&s.Call.Spec)
	if unmapped != nil {
		return "", "", fmt.Errorf("map an accepted call: %s: %s", unmapped.Reason, unmapped.Message)
	}
	parts, err := sections(map[string]any{
		"action":      action,
		"asked":       askedOf(&s.Call.Spec),
		"call":        map[string]string{"namespace": s.Call.Namespace, "name": s.Call.Name, "uid": string(s.Call.UID)},
		"caller":      s.Call.Spec.RequestedBy,
		"decision":    decisionOf(d),
		"environment": environmentOf(d.In),
		"notBound":    notBound,
		"policy":      policyOf(d.Policy),
		"references":  referencesOf(d.Refs),
		"requestedAt": asked.UTC().Format(time.RFC3339Nano),
		"session":     sessionOf(s.Session.Object),
		"skill":       skillOf(s),
	})
	if err != nil {
		return "", "", err
	}
	text, err := join(parts)
	if err != nil {
		return "", "", err
	}
	return text, Digest(text), nil
}

// Digest is the digest of a summary.
func Digest(summary string) string { return "sha256:" + sum([]byte(summary)) }

// AskedFor is the action as its caller wrote it, whole.
func AskedFor(spec *v1alpha1.ToolCallSpec) (string, error) {
	asked := spec.DeepCopy()
	asked.RequestedBy = nil
	text, err := yaml.Marshal(asked)
	if err != nil {
		return "", fmt.Errorf("write what was asked for: %w", err)
	}
	return string(text), nil
}

func sum(text []byte) string {
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:])
}

// hashed stands for a value that an approver need not see, and that may be a secret.
func hashed(value string) string {
	if value == "" {
		return ""
	}
	return "sha256:" + sum([]byte(value))
}

// askedOf is a call's spec without what changes nothing of what runs. The caller has a part of its own.
func askedOf(from *v1alpha1.ToolCallSpec) any {
	spec := from.DeepCopy()
	spec.Cancel, spec.TTLSecondsAfterFinished, spec.RequestedBy = false, nil, nil
	spec.Stdin, spec.Env = hashed(spec.Stdin), hashedVariables(spec.Env)
	var arguments string
	if spec.Tool != nil && spec.Tool.Arguments != nil {
		// As text: what a caller writes there can't look like a part that was left out.
		arguments, spec.Tool.Arguments = string(spec.Tool.Arguments.Raw), nil
	}
	return struct {
		*v1alpha1.ToolCallSpec
		ToolArguments string `json:"toolArguments,omitempty"`
	}{spec, arguments}
}

// decisionOf is a decision without its times, and without how long its pod may take to start.
func decisionOf(from *decide.Decision) any {
	d := *from
	d.CreatedMicroseconds, d.AcceptedMicroseconds, d.AssignedMicroseconds, d.StartTimeoutSeconds = 0, 0, 0, 0
	d.SessionEnv = hashedVariables(d.SessionEnv)
	d.Plan.Layers = slices.Clone(d.Plan.Layers)
	for i := range d.Plan.Layers {
		layer := &d.Plan.Layers[i]
		layer.Vars = slices.Clone(layer.Vars)
		for j := range layer.Vars {
			layer.Vars[j].Value = hashed(layer.Vars[j].Value)
		}
	}
	return d
}

// environmentOf is what pods are made from. How many calls and sessions an environment has, and how long their objects and the start of
// a pod take, changes nothing of what runs.
func environmentOf(env *v1alpha1.ExecutionEnvironment) any {
	if env == nil {
		return nil
	}
	spec := env.Spec.DeepCopy()
	spec.Suspend, spec.MaxConcurrentCalls, spec.WarmPool, spec.Queues, spec.Sessions = false, nil, nil, nil, nil
	spec.StartTimeoutSeconds, spec.TTLSecondsAfterFinished, spec.JobTTLSecondsAfterFinished = nil, nil, nil
	spec.Env = hashedSources(spec.Env)
	return map[string]any{"name": env.Name, "uid": env.UID, "spec": spec}
}

// sessionOf is the session whose pod the call shares, without the limits of its life.
func sessionOf(session *v1alpha1.ToolSession) any {
	if session == nil {
		return nil
	}
	spec := session.Spec.DeepCopy()
	spec.Suspend, spec.End = false, false
	spec.IdleTimeoutSeconds, spec.MaxLifetimeSeconds, spec.TTLSecondsAfterEnded = nil, nil, nil
	spec.MaxConcurrentCalls, spec.MaxCalls = nil, nil
	spec.Env = hashedVariables(spec.Env)
	return map[string]any{"name": session.Name, "uid": session.UID, "spec": spec}
}

// skillOf is the skill that the call, or its session, has active.
func skillOf(s *decide.Snapshot) any {
	skill := s.Skill
	if origin := s.Session.Origin; s.Call.Spec.SessionRef != nil && origin != nil {
		skill = origin.Skill
	}
	if skill == nil {
		return nil
	}
	return map[string]any{"name": skill.Name, "uid": skill.UID, "env": hashedSources(skill.Spec.Env)}
}

func policyOf(policy *v1alpha1.ExecutionPolicy) any {
	if policy == nil {
		return nil
	}
	return map[string]any{"name": policy.Name, "uid": policy.UID, "generation": policy.Generation}
}

// referencesOf are the variables that the kubelet resolves, by the names that the plan has for them.
func referencesOf(refs []corev1.EnvVar) any {
	list := map[string]corev1.EnvVar{}
	for i := range refs {
		list[refs[i].Name] = refs[i]
	}
	return list
}

func hashedVariables(env []v1alpha1.CallEnvVar) []v1alpha1.CallEnvVar {
	env = slices.Clone(env)
	for i := range env {
		env[i].Value = hashed(env[i].Value)
	}
	return env
}

func hashedSources(env []v1alpha1.EnvVar) []v1alpha1.EnvVar {
	env = slices.Clone(env)
	for i := range env {
		env[i].Value = hashed(env[i].Value)
	}
	return env
}

// longText is how long a text may be to stand as it is, in bytes.
const longText = 1 << 10

// sections encodes each part by itself, with its long texts folded.
func sections(parts map[string]any) (map[string]json.RawMessage, error) {
	encoded := map[string]json.RawMessage{}
	for name, part := range parts {
		value, err := generic(part)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}
		if value == nil {
			continue
		}
		if encoded[name], err = canonical(fold(value)); err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}
	}
	return encoded, nil
}

// omitted stands for what is too large to be shown.
func omitted(text []byte) map[string]any {
	return map[string]any{"bytes": json.Number(strconv.Itoa(len(text))), "sha256": sum(text)}
}

// fold replaces long texts, and writes a number as a text that canonical JSON would round.
func fold(value any) any {
	switch v := value.(type) {
	case string:
		if len(v) > longText {
			return omitted([]byte(v))
		}
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err != nil || n > 1<<53 || n < -1<<53 {
			return v.String()
		}
	case []any:
		for i := range v {
			v[i] = fold(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = fold(v[key])
		}
	}
	return value
}

// join is the whole document. While it is too large, its largest part stands as its hash.
func join(parts map[string]json.RawMessage) (string, error) {
	for {
		whole, err := canonical(parts)
		if err != nil {
			return "", err
		}
		if stored, err := json.Marshal(string(whole)); err != nil || len(stored)-2 <= v1alpha1.MaxApprovalSummaryBytes {
			return string(whole), err
		}
		largest := ""
		for name, part := range parts {
			if size := len(parts[largest]); len(part) > size || len(part) == size && name < largest {
				largest = name
			}
		}
		if parts[largest], err = canonical(omitted(parts[largest])); err != nil {
			return "", err
		}
	}
}

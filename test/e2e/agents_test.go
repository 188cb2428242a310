package e2e

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// agentCase is something that agents do every day, and in words what is right.
type agentCase struct {
	Name string
	Do   struct {
		Where string
		Calls []v1alpha1.ToolCallSpec
	}
	Right string
}

// situation says how a case is set up, and when it is right.
type situation struct {
	policy func(*v1alpha1.ExecutionPolicySpec)
	// environment changes the environment of the calls.
	environment func(*v1alpha1.ExecutionEnvironment)
	// prepare runs before there is an environment.
	prepare func(t *testing.T, sp *space)
	// session has the calls run in one; nil for none.
	session []func(*v1alpha1.ToolSession)
	// atOnce creates all calls before it waits for them, and waiting looks for one that waits meanwhile.
	atOnce  bool
	waiting func(s *v1alpha1.ToolCallStatus) bool
	// later has calls last longer: a kubelet that is busy looks at its disks more seldom than once a minute.
	later bool
	// refused says that the API server may refuse the calls, or has to.
	refused bool
	// right are expressions that the texts for a model have to match, one for each call; empty for any text. wrong must not match.
	right []string
	wrong string
	// check looks at what isn't in the texts; nil for nothing.
	check func(t *testing.T, calls []*v1alpha1.ToolCall)
}

func anyModule(p *v1alpha1.ExecutionPolicySpec) {
	p.Code = &v1alpha1.CodePolicy{DeniedModules: []string{}}
}

func inOneSession(adjust ...func(*v1alpha1.ToolSession)) []func(*v1alpha1.ToolSession) {
	return append(adjust, workspace("16Mi"))
}

var situations = map[string]situation{
	"git in the top directory of the workspace": {session: inOneSession(), right: []string{`^/workspace\n\nTook`}},
	"a snippet imports a module beside it":      {session: inOneSession(), right: []string{"", `^42\n`}},
	"worker processes of a snippet":             {right: []string{`^\[1, 4, 9\]\n`}},
	"a snippet's own directory":                 {policy: anyModule, right: []string{`^True \.py\nTrue\n`}},
	"what was printed before the limit": {right: []string{`^step 1\n`}, check: func(t *testing.T, calls []*v1alpha1.ToolCall) {
		expect(t, calls[0], stopped(v1alpha1.ReasonTimedOut, "SIGTERM", "step 1\n"))
	}},
	"the text says why it ended": {right: []string{`^part\n\n[^\n]*\b2 s\.\n\nTook \d+\.\ds$`}, wrong: "exited with code", check: func(t *testing.T, calls []*v1alpha1.ToolCall) {
		if calls[0].Status.ExitCode != nil {
			t.Errorf("the exit code is %d", *calls[0].Status.ExitCode)
		}
	}},
	"a quota that is full for a moment": {
		prepare: func(t *testing.T, sp *space) {
			quota := &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: "one-pod"},
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
			}
			must(t, sp.client.Create(t.Context(), quota))
			sp.await(t, "quota in force", &corev1.ResourceQuotaList{}, isEnforced, named(quota)...)
		},
		atOnce: true, waiting: func(s *v1alpha1.ToolCallStatus) bool { return s.Reason != "" && strings.Contains(s.Message, "one-pod") },
		right: []string{"", "^second\n"},
	},
	"evicted for its disk": {environment: func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("30Mi")}
	}, later: true, right: []string{"Evicted: .*ephemeral .*storage"}},
	"a home directory in a path": {session: inOneSession(), right: []string{"", "^xnone\n"}},
	"reading behind the end":     {session: inOneSession(), right: []string{"", "has 3 lines"}},
	"the session's directory isn't there yet": {
		session: inOneSession(func(s *v1alpha1.ToolSession) { s.Spec.WorkingDir = "/workspace/repo" }), right: []string{"", "^/workspace/repo\n"},
	},
	"a line that isn't UTF-8":   {session: inOneSession(), right: []string{"", "line 1 has bytes that aren't UTF-8"}, wrong: "compare it with what Read returns"},
	"a picture is read as text": {session: inOneSession(), right: []string{"", "^.{0,200}binary.{0,40}60000.{0,200}$"}, wrong: "\ufffd"},
	"progress bars": {right: []string{`^300%\nFAIL t1\n\nTook`}, check: func(t *testing.T, calls []*v1alpha1.ToolCall) {
		if s := calls[0].Status.Stdout; strings.Count(s, "\r") != 300 || !strings.Contains(s, "\x1b[31mFAIL\x1b[0m") {
			t.Errorf("stdout is %q", s)
		}
	}},
	"the order of two streams":              {right: []string{`^1\n2\n3\n`}},
	"words in the program":                  {right: []string{`one program.*args`}},
	"more than an argument holds":           {refused: true, right: []string{`\d bytes`}},
	"names of references that are no names": {refused: true, right: []string{"", ""}},
	"refused, and exit code 0": {
		policy: listed("bash", "find"), right: []string{`"/usr/bin/id" was not allowed to run: add it to binaries\.allowed`},
	},
	"a queued call says why": {
		environment: func(e *v1alpha1.ExecutionEnvironment) { e.Spec.MaxConcurrentCalls = ptr.To(int32(1)) }, atOnce: true,
		waiting: func(s *v1alpha1.ToolCallStatus) bool { return s.Reason == v1alpha1.ReasonQueued && s.Message != "" },
	},
}

func TestSituationsThatAgentsMeet(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/agents.json")
	must(t, err)
	var cases []agentCase
	must(t, json.Unmarshal(raw, &cases))
	for _, c := range cases {
		s, isKnown := situations[c.Name]
		if !isKnown {
			t.Errorf("nothing says how to try %q", c.Name)
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			s.try(t, &c)
		})
	}
}

func (s *situation) try(t *testing.T, c *agentCase) {
	var policy []func(*v1alpha1.ExecutionPolicySpec)
	if s.policy != nil {
		policy = append(policy, s.policy)
	}
	sp := newBareSpace(t, policy...)
	if s.prepare != nil {
		s.prepare(t, sp)
	}
	environment := []func(*v1alpha1.ExecutionEnvironment){isDefault}
	if s.environment != nil {
		environment = append(environment, s.environment)
	}
	sp.newEnvironment(t, defaultEnv, environment...)
	run := func(spec v1alpha1.ToolCallSpec) *v1alpha1.ToolCall { return sp.run(t, spec) }
	if s.session != nil {
		run = sp.desk(t, "desk", s.session...)
	}
	var calls []*v1alpha1.ToolCall
	for i, spec := range c.Do.Calls {
		if spec.Shell != nil && strings.Contains(spec.Shell.Command, "70,000 characters") {
			spec.Shell.Command = "true # " + strings.Repeat("é", 70_000)
		}
		if s.later && spec.Shell != nil {
			spec.Shell.Command = strings.Replace(spec.Shell.Command, "sleep 60", "sleep 240", 1)
		}
		switch {
		case s.refused:
			call := sp.newCall(spec)
			if err := sp.client.Create(t.Context(), call); !apierrors.IsInvalid(err) {
				must(t, err)
				calls = append(calls, sp.awaitFinished(t, call))
			} else if !regexp.MustCompile(s.right[i]).MatchString(err.Error()) {
				t.Errorf("call %d: %v", i, err)
			}
		case s.atOnce:
			calls = append(calls, sp.create(t, spec))
		default:
			calls = append(calls, run(spec))
		}
	}
	if s.waiting != nil {
		// Which call has to wait for a quota, the order decides in which the cluster makes their pods.
		sp.await(t, "a call that says for what it waits", &v1alpha1.ToolCallList{}, func(o client.Object, gone bool) bool {
			return !gone && s.waiting(&o.(*v1alpha1.ToolCall).Status)
		}, client.InNamespace(sp.namespace))
	}
	for i, call := range calls {
		if s.atOnce {
			call = sp.awaitFinished(t, call)
			calls[i] = call
		}
		text := call.Status.Output
		if i < len(s.right) && !regexp.MustCompile(s.right[i]).MatchString(text) || s.wrong != "" && regexp.MustCompile(s.wrong).MatchString(text) {
			t.Errorf("%s: %.2000q; right is: %s", call.Name, text, c.Right)
		}
	}
	if s.check != nil {
		s.check(t, calls)
	}
}

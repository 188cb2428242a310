package guards

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/api/v1alpha1"
)

func specFrom(t *testing.T, text string) *v1alpha1.ExecutionPolicySpec {
	t.Helper()
	var spec v1alpha1.ExecutionPolicySpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	return &spec
}

func TestPoliciesThatCannotBeCompiledNameTheField(t *testing.T) {
	t.Parallel()
	for text, field := range map[string]string{
		`{"access":"Closed"}`:                                          "spec.access",
		`{"shell":{"commands":"None"}}`:                                "spec.shell.commands",
		`{"binaries":{"mode":"Strict"}}`:                               "spec.binaries.mode",
		`{"binaries":{"allowed":["ls",""]}}`:                           "spec.binaries.allowed[1]",
		`{"binaries":{"allowed":["bin/ls"]}}`:                          "spec.binaries.allowed[0]",
		`{"binaries":{"allowed":["/bin/./ls"]}}`:                       "spec.binaries.allowed[0]",
		`{"binaries":{"allowed":["/"]}}`:                               "spec.binaries.allowed[0]",
		`{"binaries":{"enforcement":"Hope"}}`:                          "spec.binaries.enforcement",
		`{"binaries":{"multiCall":"Some"}}`:                            "spec.binaries.multiCall",
		`{"binaries":{"allowed":["git"],"helpers":{"tar":["gzip"]}}}`:  "spec.binaries.helpers[tar]",
		`{"binaries":{"allowed":["git"],"helpers":{"git":["/a/[x"]}}}`: "spec.binaries.helpers[git][0]",
		`{"binaries":{"allowed":["git"],"helpers":{"git":["git-*"]}}}`: "spec.binaries.helpers[git][0]",
		`{"files":{"readPaths":["src"]}}`:                              "spec.files.readPaths[0]",
		`{"files":{"writePaths":["/a","/b/../c"]}}`:                    "spec.files.writePaths[1]",
		`{"binaries":{"allowed":["a..b"]}}`:                            "spec.binaries.allowed[0]",
		`{"binaries":{"allowed":["l s"]}}`:                             "spec.binaries.allowed[0]",
		`{"binaries":{"allowed":["l\u0000s"]}}`:                        "spec.binaries.allowed[0]",
		`{"arguments":{"metacharacters":"Maybe"}}`:                     "spec.arguments.metacharacters",
		`{"envBlocklist":["A",""]}`:                                    "spec.envBlocklist[1]",
		`{"protectedEnv":[""]}`:                                        "spec.protectedEnv[0]",
		`{"protectedEnv":["A","B C"]}`:                                 "spec.protectedEnv[1]",
		`{"protectedEnv":["*"]}`:                                       "spec.protectedEnv[0]",
		`{"timeouts":{"defaultSeconds":0}}`:                            "spec.timeouts.defaultSeconds",
		`{"timeouts":{"maxSeconds":-1}}`:                               "spec.timeouts.maxSeconds",
		`{"timeouts":{"maxSeconds":700000}}`:                           "spec.timeouts.maxSeconds",
		`{"code":{"languages":["python",""]}}`:                         "spec.code.languages[1]",
		`{"code":{"deniedModules":[""]}}`:                              "spec.code.deniedModules[0]",
		`{"code":{"deniedModules":["o s"]}}`:                           "spec.code.deniedModules[0]",
		`{"code":{"maxExecutionMilliseconds":0}}`:                      "spec.code.maxExecutionMilliseconds",
		`{"code":{"maxScanBytes":0}}`:                                  "spec.code.maxScanBytes",
		`{"code":{"maxScanBytes":524289}}`:                             "spec.code.maxScanBytes",
		`{"code":{"oversized":"Run"}}`:                                 "spec.code.oversized",
		`{"output":{"maxBytesPerStream":0}}`:                           "spec.output.maxBytesPerStream",
		`{"output":{"maxBytesPerStream":262145}}`:                      "spec.output.maxBytesPerStream",
	} {
		_, err := Compile(specFrom(t, text))
		if err == nil || !strings.HasPrefix(err.Error(), field+":") {
			t.Errorf("%s: want an error about %s, got %v", text, field, err)
		}
	}
}

func TestDefaultsHoldForWhatIsUnset(t *testing.T) {
	t.Parallel()
	policy, err := Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	if policy.Access() != v1alpha1.AccessRBAC || policy.Bounds().MaxBytesPerStream != 65536 || policy.Timeout(&Action{}) != 120*time.Second {
		t.Errorf("defaults: %v %v %v", policy.Access(), policy.Bounds().MaxBytesPerStream, policy.Timeout(&Action{}))
	}
	want := []string{"TOOLCALL_", "KUBERNETES_", "AWS_", "AZURE_", "GCP_", "GOOGLE_", "OPENAI_", "ANTHROPIC_", "HF_", "HUGGING"}
	if diff := cmp.Diff(want, policy.EnvBlocklist()); diff != "" {
		t.Error(diff)
	}
	policy.EnvBlocklist()[0] = "changed"
	if policy.EnvBlocklist()[0] != "TOOLCALL_" {
		t.Error("a caller can change the policy's blocklist")
	}
}

// The API server writes these defaults into a policy; one that never passed it has them too.
func TestWrittenDefaultsAreTheBuiltInOnes(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/defaults.json")
	if err != nil {
		t.Fatal(err)
	}
	written, err := Compile(specFrom(t, string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`{}`, `{"shell":{},"binaries":{},"arguments":{},"timeouts":{},"code":{},"output":{}}`} {
		built, err := Compile(specFrom(t, text))
		if err != nil {
			t.Fatal(err)
		}
		// What is compared with cmp holds no functions; the rest are tables that no policy changes.
		for _, part := range [][2]any{
			{written.access, built.access}, {written.shellEnabled, built.shellEnabled}, {written.allowlisted, built.allowlisted},
			{written.binaries.enforced, built.binaries.enforced}, {written.binaries.names, built.binaries.names},
			{written.denyMeta, built.denyMeta}, {written.envBlocklist, built.envBlocklist}, {written.protectedEnv, built.protectedEnv},
			{written.timeout, built.timeout}, {written.maxTimeout, built.maxTimeout},
			{written.bounds, built.bounds}, {written.code.enabled, built.code.enabled}, {written.code.languages, built.code.languages},
			{written.code.network, built.code.network}, {written.code.maxTime, built.code.maxTime}, {written.code.maxScan, built.code.maxScan},
			{written.code.scanPrefix, built.code.scanPrefix},
		} {
			if diff := cmp.Diff(part[0], part[1]); diff != "" {
				t.Errorf("%s: %s", text, diff)
			}
		}
		source := &Action{Type: v1alpha1.ActionCode, Language: "python", Source: "import subprocess"}
		if denial := built.Check(Input{Action: source, Requester: &v1alpha1.Requester{Username: "u"}, MayUse: func(string) (bool, error) { return true, nil }}); denial == nil {
			t.Errorf("%s denies no module", text)
		}
	}
}

func TestAnEmptyListIsNotAnUnsetOne(t *testing.T) {
	t.Parallel()
	policy, err := Compile(specFrom(t, `{"access":"Open","envBlocklist":[],"protectedEnv":[],"code":{"languages":[],"deniedModules":[],"networkAccess":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(policy.EnvBlocklist()) != 0 {
		t.Error("the blocklist isn't empty")
	}
	denial := policy.Check(Input{
		Action: &Action{Type: v1alpha1.ActionCode, Language: "cobol", Source: "import os, socket"},
		Env:    []v1alpha1.CallEnvVar{{Name: "PATH", Value: "x"}},
	})
	if denial != nil {
		t.Errorf("refused: %+v", denial)
	}
}

func TestTheTimeoutIsClamped(t *testing.T) {
	t.Parallel()
	policy, err := Compile(specFrom(t, `{"timeouts":{"defaultSeconds":30,"maxSeconds":60}}`))
	if err != nil {
		t.Fatal(err)
	}
	for wanted, want := range map[time.Duration]time.Duration{
		0: time.Second, -5: time.Second, time.Millisecond: time.Second, 1500 * time.Millisecond: 1500 * time.Millisecond,
		time.Minute: time.Minute, time.Hour: time.Minute,
	} {
		if got := policy.Timeout(&Action{WantedTime: &wanted}); got != want {
			t.Errorf("%v: want %v, got %v", wanted, want, got)
		}
	}
	if policy.Timeout(&Action{}) != 30*time.Second {
		t.Error("the default isn't used")
	}
	for text, want := range map[string]time.Duration{
		`{"timeouts":{"maxSeconds":60}}`: time.Minute, `{"timeouts":{"defaultSeconds":700}}`: 600 * time.Second, `{"timeouts":{"defaultSeconds":30,"maxSeconds":20}}`: 20 * time.Second,
	} {
		policy, err := Compile(specFrom(t, text))
		if err != nil || policy.Timeout(&Action{}) != want {
			t.Errorf("%s: %v: the default isn't clamped to %v", text, err, want)
		}
	}
}

func TestACodeCallGetsNoMoreThanTheLongestThatItMayAskFor(t *testing.T) {
	t.Parallel()
	action := func(kind v1alpha1.ActionType, wanted time.Duration) *Action {
		a := &Action{Type: kind, Language: "python", Source: "1"}
		if wanted != 0 {
			a.WantedTime = &wanted
		}
		return a
	}
	for _, tc := range []struct {
		policy string
		action *Action
		want   time.Duration
	}{
		{`{"code":{"maxExecutionMilliseconds":5000}}`, action(v1alpha1.ActionCode, 0), 5 * time.Second},
		{`{"code":{"maxExecutionMilliseconds":5000}}`, action(v1alpha1.ActionCode, 2*time.Second), 2 * time.Second},
		{`{"code":{"maxExecutionMilliseconds":5000}}`, action(v1alpha1.ActionCode, 5*time.Second), 5 * time.Second},
		{`{"code":{"maxExecutionMilliseconds":500}}`, action(v1alpha1.ActionCode, 0), 500 * time.Millisecond},
		{`{"code":{"maxExecutionMilliseconds":500}}`, action(v1alpha1.ActionCode, 100*time.Millisecond), 500 * time.Millisecond},
		{`{"code":{"maxExecutionMilliseconds":900000}}`, action(v1alpha1.ActionCode, 0), 120 * time.Second},
		{`{"code":{"maxExecutionMilliseconds":900000}}`, action(v1alpha1.ActionCode, 700*time.Second), 600 * time.Second},
		{`{"timeouts":{"defaultSeconds":3},"code":{"maxExecutionMilliseconds":5000}}`, action(v1alpha1.ActionCode, 0), 3 * time.Second},
		{`{}`, action(v1alpha1.ActionCode, 0), 120 * time.Second},
		{`{"code":{"maxExecutionMilliseconds":5000}}`, action(v1alpha1.ActionShell, 0), 120 * time.Second},
		{`{"code":{"maxExecutionMilliseconds":5000}}`, action(v1alpha1.ActionStructured, 60*time.Second), 60 * time.Second},
	} {
		policy, err := Compile(specFrom(t, tc.policy))
		if err != nil {
			t.Fatal(err)
		}
		if got := policy.Timeout(tc.action); got != tc.want {
			t.Errorf("%s, %s: want %v, got %v", tc.policy, tc.action.Type, tc.want, got)
		}
	}
}

func TestListsAreComparedAsWritten(t *testing.T) {
	t.Parallel()
	policy, err := Compile(specFrom(t, `{"access":"Open","code":{"languages":["JavaScript"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if denial := checkCode(policy, "javascript", "1"); denial != nil {
		t.Errorf("languages aren't compared in lower case: %+v", denial)
	}
	if denial := checkCode(policy, "unknown", "1"); denial == nil || denial.Reason != v1alpha1.ReasonLanguageNotAllowed {
		t.Errorf("unknown passed: %+v", denial)
	}
}

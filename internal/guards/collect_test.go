package guards

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/spec"
)

func TestGlobsThatNoFileSystemCouldMakeRightAreDenied(t *testing.T) {
	t.Parallel()
	policy, err := Compile(&v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen, Files: &v1alpha1.FilesPolicy{
		WritePaths: []string{"/workspace", "/data/out/"}, DeniedPaths: []string{".git", "/workspace/secrets/**", "*.pem"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	anywhere, err := Compile(&v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen})
	if err != nil {
		t.Fatal(err)
	}
	for glob, says := range map[string]string{
		"*.png": "", "out/**/*.csv": "", "/workspace/*": "", "/data/out/x": "", "/workspace": "outside of", "/data/*": "outside of",
		"/workspaces/x": "outside of", "/etc/passwd": "outside of", "/**": "outside of",
		"/workspace/secrets/key": "denied", "/workspace/SECRETS/deep/*": "denied", "/workspace/a/.git/*": "denied", "/workspace/a.pem": "denied",
		// What these match, the runner looks at.
		"/workspace/*/.git/config": "", "secrets/*": "", "a.pem": "",
		"../x": "not a glob", "a/../b": "not a glob", "/workspace/../etc/*": "not a glob", "a/./b": "not a glob", "a//b": "not a glob", "": "not a glob", "/": "not a glob",
		"[": "not a glob", "{a": "not a glob", "a\xff": "not a glob", "a/": "not a glob",
	} {
		input := Input{Action: mustMap(t, "ls"), Collect: []string{"fine", glob}}
		denial := policy.Check(input)
		switch {
		case says == "" && denial != nil:
			t.Errorf("%q is denied: %s", glob, denial.Message)
		case says != "" && (denial == nil || denial.Reason != v1alpha1.ReasonInvalidArguments || !strings.Contains(denial.Message, says) || !strings.Contains(denial.Message, "collect[1]")):
			t.Errorf("%q: want %q, got %+v", glob, says, denial)
		}
		if open := anywhere.Check(input); says == "outside of" && open != nil {
			t.Errorf("%q is denied without write paths: %s", glob, open.Message)
		}
	}
}

func TestADenialNamesWhatMayBeCollected(t *testing.T) {
	t.Parallel()
	for says, paths := range map[string][]string{"use a path below /workspace, /data": {"/workspace", "/data"}, "the list is empty, so leave it out": {}} {
		policy, err := Compile(&v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen, Files: &v1alpha1.FilesPolicy{WritePaths: paths}})
		if err != nil {
			t.Fatal(err)
		}
		denial := policy.Check(Input{Action: mustMap(t, "ls"), Collect: []string{"/etc/*"}})
		if denial == nil || !strings.HasSuffix(denial.Message, "let the call write to: "+says) {
			t.Errorf("%q: got %+v", paths, denial)
		}
	}
}

func mustMap(t *testing.T, binary string) *Action {
	t.Helper()
	action, denial := Map(&v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: binary}})
	if denial != nil {
		t.Fatal(denial.Message)
	}
	return action
}

func TestEveryKindOfActionIsHeldToWhatItCollects(t *testing.T) {
	t.Parallel()
	policy, err := Compile(&v1alpha1.ExecutionPolicySpec{
		Access: v1alpha1.AccessOpen, Shell: &v1alpha1.ShellPolicy{Enabled: ptr(true)}, Code: &v1alpha1.CodePolicy{Enabled: ptr(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]v1alpha1.ToolCallSpec{
		"structured": {Structured: &v1alpha1.StructuredAction{Binary: "ls"}},
		"shell":      {Shell: &v1alpha1.ShellAction{Command: "ls"}},
		"code":       {Code: &v1alpha1.CodeAction{Language: "python", Source: "1"}},
		"file":       {File: &v1alpha1.FileAction{Operation: v1alpha1.FileStat, Path: "."}},
	} {
		action, denial := Map(&spec)
		if denial != nil {
			t.Fatal(name, denial.Message)
		}
		if denial := policy.Check(Input{Action: action, Collect: []string{"out/*"}}); (denial != nil) != (name == "file") {
			t.Errorf("%s: %+v", name, denial)
		}
		if denial := policy.Check(Input{Action: action, Collect: []string{"../*"}}); denial == nil {
			t.Errorf("%s may collect what is above", name)
		}
	}
}

func TestThePolicyBoundsWhatIsCollected(t *testing.T) {
	t.Parallel()
	compile := func(a *v1alpha1.ArtifactsPolicy) (spec.Collect, error) {
		policy, err := Compile(&v1alpha1.ExecutionPolicySpec{Output: &v1alpha1.OutputPolicy{Artifacts: a}})
		if err != nil {
			return spec.Collect{}, err
		}
		return policy.Artifacts(), nil
	}
	defaults := spec.Collect{MaxCount: 100, MaxBytes: 32 << 20, MaxTotalBytes: 128 << 20}
	for _, unset := range []*v1alpha1.ArtifactsPolicy{nil, {}} {
		if got, err := compile(unset); err != nil || !cmp.Equal(got, defaults) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	own := &v1alpha1.ArtifactsPolicy{MaxCount: ptr(int32(0)), MaxBytes: ptr(int64(1)), MaxTotalBytes: ptr(int64(1 << 30))}
	if got, err := compile(own); err != nil || !cmp.Equal(got, spec.Collect{MaxBytes: 1, MaxTotalBytes: 1 << 30}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for field, a := range map[string]*v1alpha1.ArtifactsPolicy{
		"maxCount": {MaxCount: ptr(int32(101))}, "maxBytes": {MaxBytes: ptr(int64(0))}, "maxTotalBytes": {MaxTotalBytes: ptr(int64(1<<30 + 1))},
	} {
		if _, err := compile(a); err == nil || !strings.Contains(err.Error(), "spec.output.artifacts."+field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

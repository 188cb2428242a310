package initialize

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// planned is the plan of flags, which the change alters.
func planned(t *testing.T, change func(*options)) *plan {
	t.Helper()
	p, err := newPlan(flagged(change))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func flagged(change func(*options)) *options {
	o := &options{namespace: "agents", agent: "coder", policy: "coding", image: "registry.example.com/tools:1"}
	if change != nil {
		change(o)
	}
	return o
}

// Whatever is asked for, the policy says by its examples what passes and what doesn't, and they come out so.
func TestEveryPolicyIsWhatItsExamplesSay(t *testing.T) {
	t.Parallel()
	toolLists := [][]string{
		nil, {"bash"}, {"bash", "python", "git"}, {"python"}, {"git"}, {"file.read"}, {"file.read", "file.write", "git"}, {"ls"},
		{"javascript", "perl", "ruby", "node"}, {"curl", "wget", "nc", "ssh", "bash"},
	}
	for _, name := range presetNames() {
		for _, tools := range toolLists {
			for _, hosts := range [][]string{nil, {"git.example.com:22", "git.example.com", "*.example.org:8443", "192.0.2.0/24", "[2001:db8::1]:443", "2001:db8::2"}} {
				t.Run(fmt.Sprint(name, tools, len(hosts)), func(t *testing.T) {
					t.Parallel()
					p := planned(t, func(o *options) { o.policy, o.tools, o.hosts = name, tools, hosts })
					var approve []string
					for _, program := range []string{"git", "python3"} {
						if slices.Contains(p.tools.programs, program) {
							approve = append(approve, program+" push --all", program)
						}
					}
					checkPolicy(t, p)
					checkPolicy(t, planned(t, func(o *options) { o.policy, o.tools, o.hosts, o.approve = name, tools, hosts, approve }))
				})
			}
		}
	}
}

func checkPolicy(t *testing.T, p *plan) {
	t.Helper()
	policy := p.policy
	if _, err := decide.CompilePolicy(policy); err != nil {
		t.Fatal(err)
	}
	seen := map[v1alpha1.ExpectedVerdict]int{}
	for i := range policy.Spec.Examples {
		seen[policy.Spec.Examples[i].Expect]++
	}
	if seen[v1alpha1.ExpectAllow] == 0 && len(p.phrases) == 0 || seen[v1alpha1.ExpectDeny] < 2 || seen[v1alpha1.ExpectApproval] < len(p.phrases) {
		t.Errorf("examples: %v", seen)
	}
	if policy.Spec.Files.WritePaths == nil || policy.Spec.Binaries.Enforcement != v1alpha1.EnforcementKernel || policy.Spec.Network.Mode == v1alpha1.NetworkUnrestricted {
		t.Errorf("something isn't restricted: %+v", policy.Spec)
	}
}

// The longest rules are still within the bounds of their cost.
func TestAsManyPhrasesAsThereCanBe(t *testing.T) {
	t.Parallel()
	var texts []string
	for i := range maxPhrases {
		texts = append(texts, fmt.Sprintf("git %032d %032d %032d", i, i+100, i+200))
	}
	checkPolicy(t, planned(t, func(o *options) { o.approve = texts }))
}

// What each policy refuses that another one allows.
func TestThePoliciesDiffer(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		writes, network, modules, maxSeconds string
		built                                bool
	}{
		"read-only": {"[]", "None", "[]", "300", false},
		"coding":    {"[/workspace /tmp]", "Listed", "[]", "600", false},
		"data":      {"[/workspace /tmp]", "None", "[subprocess socket ctypes pickle marshal importlib]", "900", false},
		"ci":        {"[/workspace /tmp]", "Listed", "[]", "3600", true},
	} {
		spec := planned(t, func(o *options) { o.policy = name }).policy.Spec
		if got := fmt.Sprint(spec.Files.WritePaths); got != want.writes {
			t.Errorf("%s writes below %s", name, got)
		}
		if got := string(spec.Network.Mode); got != want.network || len(spec.Network.Allowed) > 0 {
			t.Errorf("%s: network %s %v", name, got, spec.Network.Allowed)
		}
		if got := fmt.Sprint(spec.Code.DeniedModules); got != want.modules {
			t.Errorf("%s denies modules %s", name, got)
		}
		if got := fmt.Sprint(*spec.Timeouts.MaxSeconds); got != want.maxSeconds {
			t.Errorf("%s runs for %s s", name, got)
		}
		if got := slices.Contains(spec.Binaries.Allowed, "/workspace/"); got != want.built {
			t.Errorf("%s runs what it built: %t", name, got)
		}
	}
}

// The agent may use exactly what its policy lets run.
func TestToolsNarrowPolicyAndRights(t *testing.T) {
	t.Parallel()
	p := planned(t, func(o *options) { o.tools = []string{"python", " git", "git", "file.read"} })
	spec := p.policy.Spec
	if *spec.Shell.Enabled || fmt.Sprint(spec.Binaries.Allowed) != "[git python3]" || fmt.Sprint(spec.Code.Languages) != "[python]" {
		t.Errorf("shell %t, programs %v, languages %v", *spec.Shell.Enabled, spec.Binaries.Allowed, spec.Code.Languages)
	}
	if got := fmt.Sprint(p.toolsRole().Rules); got != "[{[use] [toolcall.dev] [tools] [file.read git python python3] []}]" {
		t.Errorf("the role grants %s", got)
	}
}

func TestFlagsThatMakeNoPlan(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*options){
		`the namespace "a.b"`:                            func(o *options) { o.namespace = "a.b" },
		`reserved for Kubernetes`:                        func(o *options) { o.namespace = "kube-system" },
		`every pod that names no account`:                func(o *options) { o.agent = "default" },
		`the program that runs python is called python3`: func(o *options) { o.approve = []string{"python deploy.py"} },
		`--agent: give a name`:                           func(o *options) { o.agent = "" },
		`--agent "../x"`:                                 func(o *options) { o.agent = "../x" },
		`--agent "x\n---\nkind"`:                         func(o *options) { o.agent = "x\n---\nkind" },
		`must be one of read-only`:                       func(o *options) { o.policy = "open" },
		`--image ""`:                                     func(o *options) { o.image = "" },
		`--image "a b"`:                                  func(o *options) { o.image = "a b" },
		`"/bin/sh" is no tool`:                           func(o *options) { o.tools = []string{"/bin/sh"} },
		`"file.delete" is no tool`:                       func(o *options) { o.tools = []string{"file.delete"} },
		`"" is no tool`:                                  func(o *options) { o.tools = []string{""} },
		`--tools "": name the tools`:                     func(o *options) { o.tools = []string{} },
		`65 names are too many`:                          func(o *options) { o.tools = slices.Repeat([]string{"git"}, 65) },
		`257 hosts are too many`:                         func(o *options) { o.hosts = slices.Repeat([]string{"a.example"}, 257) },
		`without the scheme`:                             func(o *options) { o.hosts = []string{"https://git.example.com/x"} },
		`the port is "ssh"`:                              func(o *options) { o.hosts = []string{"git.example.com:ssh"} },
		`the port is "65536"`:                            func(o *options) { o.hosts = []string{"git.example.com:65536"} },
		`17 phrases are too many`:                        func(o *options) { o.approve = slices.Repeat([]string{"git push"}, 17) },
		`--approve "git a b c d"`:                        func(o *options) { o.approve = []string{"git a b c d"} },
		`"git push" is given twice`:                      func(o *options) { o.approve = []string{"git push", "git push"} },
		`--approve ""`:                                   func(o *options) { o.approve = []string{""} },
		`give a program and arg`:                         func(o *options) { o.approve = []string{`git push") || true || ("`} },
		`the agent has no tool "tf"`:                     func(o *options) { o.approve = []string{"tf apply"} },
	} {
		if _, err := newPlan(flagged(change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	// What a host may be, the compiler of policies knows.
	for _, host := range []string{"", "a b", "*", "10.0.0.0/33", "x:y:z", "example.com/path"} {
		if _, err := newPlan(flagged(func(o *options) { o.hosts = []string{host} })); err == nil || !strings.Contains(err.Error(), "host") {
			t.Errorf("host %q: %v", host, err)
		}
	}
}

// A person decides about what names the words, also where another program starts it or a part isn't written out, and not about the rest.
func TestWhatAPersonDecidesAbout(t *testing.T) {
	t.Parallel()
	policy := planned(t, func(o *options) { o.approve = []string{"git push", "make"} }).policy
	policy.Spec.Examples = nil
	add := func(expect v1alpha1.ExpectedVerdict, calls ...*v1alpha1.ToolCallSpec) {
		for _, call := range calls {
			policy.Spec.Examples = append(policy.Spec.Examples, example(fmt.Sprintf("e-%d", len(policy.Spec.Examples)), call, expect, ""))
		}
	}
	add(v1alpha1.ExpectApproval,
		structured("git", "-C", "repo", "push"), structured("env", "git", "push"), structured("make"), structured("timeout", "5", "/usr/bin/make", "all"),
		shell("git push"), shell("cd repo && git push origin main"), shell(`\git 'pu'sh`), shell("env /usr/bin/git push"), shell("if true; then git push; fi"),
		shell("echo $(git push)"), shell(`g=git; $g push`), shell(`git "$verb"`), shell(`{git,push}`), shell("env $g push"), shell("xargs git push < list"),
		shell(`bash -c 'git push'`), shell(`eval "git push"`), shell("gi? push"), shell("~/bin/x"), shell("git `cat verb`"),
		&v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: "python", Source: `import subprocess; subprocess.run(["git", "push"])`}},
		shell("bash <<'EOF'\ngit push\nEOF"), shell("bash <<< 'git push'"), shell("cat <<E | bash\ngit push\nE"), fed("git push", "bash", "-s"),
		shell("PROMPT_COMMAND='git push' bash -i"), shell("echo push | xargs git"), shell("xargs -n1 git <<< push"), shell(`bash -c 'git "$1"' _ push`),
		shell("git -c alias.x=push x"), shell("tee x <<< 'git push'; sh x"), shell(". /dev/stdin <<< 'git push'"),
	)
	add(v1alpha1.ExpectAllow,
		structured("git", "status"), structured("ls", "push"), shell("git fetch && git status"), shell("for i in 1 2 3; do echo $i; done"), shell("ls *.go | wc -l"),
		shell(`if [ -f "$f" ]; then echo y; fi`), shell(`[ "$a" = b ] && ls`), shell("bash <<< 'git status'"), fed("push", "sort", "-u"),
		shell(firstLine), shell("cd $HOME && cat *.txt > all; test -f pushed"), code("python"),
		&v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "/workspace/push"}},
	)
	outcomes, err := decide.JudgeExamples(policy, policy.Spec.Examples)
	if err != nil {
		t.Fatal(err)
	}
	for i := range outcomes {
		if o := &outcomes[i]; !o.Met {
			t.Errorf("%s comes out as %s %s, not %s", o.Example.Call.Raw, o, o.Message, o.Expected())
		}
	}
}

// fed is a structured call with a standard input.
func fed(stdin, program string, args ...string) *v1alpha1.ToolCallSpec {
	call := structured(program, args...)
	call.Stdin = stdin
	return call
}

// An address can have a user's password in it.
func TestTheKubeconfigHasNoPasswordOfTheUser(t *testing.T) {
	t.Parallel()
	cluster, err := clusterOf(&rest.Config{Host: "https://user:password@192.0.2.1:6443/path"})
	if err != nil || cluster.Server != "https://192.0.2.1:6443/path" {
		t.Errorf("%+v: %v", cluster, err)
	}
}

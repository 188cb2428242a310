package initialize

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/plugin/cli"
)

// elsewhere is a host that nobody lists: the name is reserved.
const elsewhere = "elsewhere.invalid"

// examples say of the policy what passes, what is denied and what a person decides about. What passes is what the rules leave.
func (p *plan) examples(rules *v1alpha1.ExecutionPolicy) ([]v1alpha1.PolicyExample, error) {
	passes, err := p.firstPasses(rules)
	if err != nil {
		return nil, err
	}
	list := []v1alpha1.PolicyExample{
		example("first", p.firstCall(), passes, ""),
		example("unlisted-program", structured(p.tools.unlisted()), v1alpha1.ExpectDeny, v1alpha1.ReasonBinaryNotAllowed),
	}
	switch {
	case !p.tools.shell:
		list = append(list, example("shell", shell("ls"), v1alpha1.ExpectDeny, v1alpha1.ReasonShellDisabled))
	case !p.preset.runsBuilt:
		list = append(list, example("unlisted-in-a-line", shell("ls && "+p.tools.unlisted()), v1alpha1.ExpectDeny, v1alpha1.ReasonShellCommandNotAllowed))
	}
	reason := v1alpha1.ReasonLanguageNotAllowed
	if len(p.tools.languages) == 0 {
		reason = v1alpha1.ReasonCodeDisabled
	}
	list = append(list, example("unlisted-language", code("php"), v1alpha1.ExpectDeny, reason))
	return slices.Concat(list, p.hostExamples(passes), p.approvalExamples()), nil
}

// firstPasses is what becomes of the first call if it isn't denied: a phrase can be so wide that a person decides about it too.
func (p *plan) firstPasses(rules *v1alpha1.ExecutionPolicy) (v1alpha1.ExpectedVerdict, error) {
	outcomes, err := decide.JudgeExamples(rules, []v1alpha1.PolicyExample{example("first", p.firstCall(), v1alpha1.ExpectApproval, "")})
	if err != nil || !outcomes[0].Met {
		return v1alpha1.ExpectAllow, err
	}
	return v1alpha1.ExpectApproval, nil
}

// hostExamples show a host that is listed and one that isn't. File actions have no network.
func (p *plan) hostExamples(passes v1alpha1.ExpectedVerdict) []v1alpha1.PolicyExample {
	if len(p.hosts) == 0 || p.firstCall().File != nil {
		return nil
	}
	listed, other := p.firstCall(), p.firstCall()
	listed.Network = &v1alpha1.CallNetwork{Hosts: []string{p.hosts[0].Host}}
	other.Network = &v1alpha1.CallNetwork{Hosts: []string{elsewhere}}
	return []v1alpha1.PolicyExample{
		example("listed-host", listed, passes, ""),
		example("other-host", other, v1alpha1.ExpectDeny, v1alpha1.ReasonNetworkNotAllowed),
	}
}

// approvalExamples show each phrase as a program's arguments, and as a line that hides the program's name.
func (p *plan) approvalExamples() (list []v1alpha1.PolicyExample) {
	for i, phrase := range p.phrases {
		list = append(list, example(fmt.Sprintf("approve-%d", i+1), structured(phrase.program, phrase.args...), v1alpha1.ExpectApproval, ""))
		if p.tools.shell {
			hidden := phrase
			hidden.program = "p=" + phrase.program + "; $p"
			list = append(list, example(fmt.Sprintf("approve-%d-hidden", i+1), shell(hidden.String()), v1alpha1.ExpectApproval, ""))
		}
	}
	return list
}

// firstCall is what the agent's first lines run.
func (p *plan) firstCall() *v1alpha1.ToolCallSpec {
	switch {
	case p.tools.shell:
		return shell(firstLine)
	case len(p.tools.languages) > 0:
		return code(p.tools.languages[0])
	case len(p.tools.programs) > 0:
		return structured(p.tools.main(), "--version")
	default:
		return &v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileList, Path: workspace}}
	}
}

func shell(command string) *v1alpha1.ToolCallSpec {
	return &v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: command}}
}

func structured(program string, args ...string) *v1alpha1.ToolCallSpec {
	return &v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: program, Args: args}}
}

func code(language string) *v1alpha1.ToolCallSpec {
	return &v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: language, Source: firstSources[language]}}
}

func example(name string, call *v1alpha1.ToolCallSpec, expect v1alpha1.ExpectedVerdict, reason string) v1alpha1.PolicyExample {
	raw, err := json.Marshal(call)
	cli.Must(err)
	return v1alpha1.PolicyExample{Name: name, Call: runtime.RawExtension{Raw: raw}, Expect: expect, Reason: reason}
}

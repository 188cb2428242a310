package reply

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
)

const (
	// anything stands for every program, language or host.
	anything = "*"
	// maxAllowed is how many names of each kind are listed, maxAllowedName how many bytes of each.
	maxAllowed     = 40
	maxAllowedName = 80
)

// Allowed is what a policy lets calls do. A list that is empty allows nothing, "*" is anything.
type Allowed struct {
	// CommandLines are the programs that run_command may start, Programs those of run_program.
	CommandLines []string `json:"command_lines"`
	Programs     []string `json:"programs"`
	Languages    []string `json:"languages"`
	Hosts        []string `json:"hosts"`
	// CodeHosts are the hosts that code may reach.
	CodeHosts []string `json:"code_hosts"`
}

// AllowedBy says what a policy lets calls do. Unset fields have their defaults.
func AllowedBy(policy *v1alpha1.ExecutionPolicySpec) *Allowed {
	shell, code := ptr.Deref(policy.Shell, v1alpha1.ShellPolicy{}), ptr.Deref(policy.Code, v1alpha1.CodePolicy{})
	a := &Allowed{CommandLines: []string{}, Programs: programsOf(policy.Binaries), Languages: []string{}}
	if ptr.Deref(shell.Enabled, false) {
		a.CommandLines = []string{anything}
		if shell.Commands == v1alpha1.ShellAllowlisted {
			a.CommandLines = programsOf(policy.Binaries)
		}
	}
	if ptr.Deref(code.Enabled, true) {
		a.Languages = languagesOf(&code)
	}
	a.Hosts, a.CodeHosts = hostsOf(policy.Network, ptr.Deref(code.NetworkAccess, false))
	return a
}

func languagesOf(code *v1alpha1.CodePolicy) []string {
	switch {
	case code.Languages == nil:
		return []string{"python"}
	case len(code.Languages) == 0:
		return []string{anything}
	default:
		return firstOf(code.Languages)
	}
}

// programsOf are the programs that are listed, or anything where it is empty and isn't enforced.
func programsOf(rules *v1alpha1.BinariesPolicy) []string {
	if rules == nil || len(rules.Allowed) == 0 && rules.Mode != v1alpha1.BinariesEnforced {
		return []string{anything}
	}
	return firstOf(rules.Allowed)
}

func hostsOf(rules *v1alpha1.NetworkRules, codeAsks bool) (hosts, codeHosts []string) {
	network := ptr.Deref(rules, v1alpha1.NetworkRules{})
	switch cmp.Or(network.Mode, v1alpha1.NetworkOpen) {
	case v1alpha1.NetworkNone:
		hosts = []string{}
	case v1alpha1.NetworkListed:
		hosts = firstOf(endpoints(network.Allowed))
	default:
		hosts = []string{anything}
	}
	if network.Mode == "" && !codeAsks {
		return hosts, []string{}
	}
	return hosts, hosts
}

func endpoints(allowed []v1alpha1.AllowedHost) (all []string) {
	for _, host := range allowed {
		ports := host.Ports
		if len(ports) == 0 {
			ports = []int32{443}
		}
		for _, port := range ports {
			all = append(all, net.JoinHostPort(host.Host, strconv.Itoa(int(port))))
		}
	}
	return all
}

// firstOf are the first names of a list, and how many more there are.
func firstOf(names []string) []string {
	return firstTexts(names, maxAllowed, func(name string) string { return bounds.Text(name, maxAllowedName) })
}

// firstTexts are the first of many as texts, and how many more there are.
func firstTexts[T any](all []T, most int, text func(T) string) []string {
	texts := []string{}
	for _, one := range all[:min(len(all), most)] {
		texts = append(texts, text(one))
	}
	if more := len(all) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return texts
}

// text is one line for a model.
func (a *Allowed) text() string {
	parts := []string{
		"run_command: " + joined(a.CommandLines, "any program"), "run_program: " + joined(a.Programs, "any program"),
		"run_code: " + joined(a.Languages, "any language"), "hosts: " + joined(a.Hosts, "any"),
	}
	if !slices.Equal(a.Hosts, a.CodeHosts) {
		parts = append(parts, "hosts of run_code: "+joined(a.CodeHosts, "any"))
	}
	return strings.Join(parts, "; ")
}

// joined lists names, of which everything says all.
func joined(names []string, everything string) string {
	switch {
	case len(names) == 0:
		return "none"
	case names[0] == anything:
		return everything
	default:
		return strings.Join(names, ", ")
	}
}

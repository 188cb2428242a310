package initialize

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"toolcall.dev/operator/api/v1alpha1"
)

const (
	// defaultImage is that of the local node, as in config/samples.
	defaultImage = "toolcall.dev/tools:dev"
	// maxImage is the API's bound.
	maxImage = 1024
	// maxHosts bounds the hosts of a policy.
	maxHosts = 256
)

// plan is what the flags ask for, checked.
type plan struct {
	namespace, agent, image string
	preset                  *preset
	tools                   toolset
	hosts                   []v1alpha1.AllowedHost
	phrases                 []phrase
	policy                  *v1alpha1.ExecutionPolicy
	// isDefault has calls that name no environment run in that of the plan.
	isDefault bool
}

func newPlan(o *options) (*plan, error) {
	p := &plan{namespace: o.namespace, agent: o.agent, image: o.image, isDefault: true}
	if err := cmp.Or(checkName("the namespace", o.namespace), checkName("--agent", o.agent), checkImage(o.image)); err != nil {
		return nil, err
	}
	if o.agent == "default" {
		return nil, errors.New("--agent \"default\": every pod that names no account runs as that one: choose another")
	}
	if strings.HasPrefix(o.namespace, "kube-") {
		return nil, fmt.Errorf("the namespace %q is reserved for Kubernetes itself: choose another", o.namespace)
	}
	at := slices.IndexFunc(presets, func(known preset) bool { return known.name == o.policy })
	if at < 0 {
		return nil, fmt.Errorf("--policy %q: must be one of %s", o.policy, strings.Join(presetNames(), ", "))
	}
	p.preset = &presets[at]
	names := o.tools
	switch {
	case names == nil:
		names = p.preset.tools
	case len(names) == 0:
		return nil, errors.New("--tools \"\": name the tools, e.g. bash,python,git, or leave the flag out for those of the policy")
	}
	var err error
	if p.tools, err = toolsetOf(names, p.preset.utilities); err != nil {
		return nil, err
	}
	if p.hosts, err = hostsOf(o.hosts); err != nil {
		return nil, err
	}
	if p.phrases, err = phrasesOf(o.approve, &p.tools); err != nil {
		return nil, err
	}
	return p, p.setPolicy()
}

// checkName checks a name that becomes part of other names, in which a dot separates it from the next part.
func checkName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%s: give a name", what)
	}
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("%s %q: a name has at most 63 lower-case letters, digits and '-', and begins and ends with a letter or digit", what, name)
	}
	return nil
}

func checkImage(image string) error {
	if image == "" || len(image) > maxImage || strings.ContainsFunc(image, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return fmt.Errorf("--image %q: give the name of an image, like registry.example.com/tools:1", image)
	}
	return nil
}

// hostsOf reads hosts with their ports. Ports of the same host are put together.
func hostsOf(list []string) (hosts []v1alpha1.AllowedHost, err error) {
	if len(list) > maxHosts {
		return nil, fmt.Errorf("--hosts: %d hosts are too many: use at most %d", len(list), maxHosts)
	}
	for _, text := range list {
		host, port, err := hostOf(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("--hosts %q: %w", text, err)
		}
		at := slices.IndexFunc(hosts, func(h v1alpha1.AllowedHost) bool { return h.Host == host })
		if at < 0 {
			at = len(hosts)
			hosts = append(hosts, v1alpha1.AllowedHost{Host: host})
		}
		if !slices.Contains(hosts[at].Ports, port) {
			hosts[at].Ports = append(hosts[at].Ports, port)
		}
	}
	return hosts, nil
}

// hostOf reads HOST or HOST:PORT. What a host may be, the policy's compiler checks.
func hostOf(text string) (host string, port int32, err error) {
	if strings.Contains(text, "://") {
		return "", 0, errors.New("give the host without the scheme and the path of a URL")
	}
	host, written, err := net.SplitHostPort(text)
	if err != nil {
		// No port, or an IPv6 address without brackets.
		return strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), 443, nil
	}
	number, err := strconv.ParseUint(written, 10, 16)
	if err != nil || number == 0 {
		return "", 0, fmt.Errorf("the port is %q: use a number from 1 to 65535", written)
	}
	return host, int32(number), nil
}

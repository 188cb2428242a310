package calls

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
)

// networkFields say what of the network a call could reach, and what was refused to it.
func networkFields(call *v1alpha1.ToolCall) []cli.Field {
	var fields []cli.Field
	if n := call.Spec.Network; n != nil {
		fields = append(fields, cli.Field{"Narrowed to", strings.Join(n.Hosts, ", ")})
	}
	n := call.Status.Network
	if n == nil {
		return fields
	}
	fields = append(fields, cli.Field{"Mode", string(n.Mode)})
	if call.Spec.Network == nil {
		fields = append(fields, cli.Field{"Allowed", strings.Join(n.Allowed, ", ")})
	}
	for _, d := range n.Denied {
		fields = append(fields, cli.Field{"Refused", deniedText(d) + times(d.Count)})
	}
	if n.OmittedDenied > 0 {
		fields = append(fields, cli.Field{"Refused", "and other hosts" + times(n.OmittedDenied)})
	}
	return fields
}

// deniedText is a host with the port, if there was one.
func deniedText(d v1alpha1.DeniedHost) string {
	if d.Port == 0 {
		return d.Host + " (lookup)"
	}
	return net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
}

// redactionFields say where values of Secrets were replaced, and how often.
func redactionFields(all []v1alpha1.Redaction) []cli.Field {
	var fields []cli.Field
	for _, r := range all {
		fields = append(fields, cli.Field{r.Name, "in " + strings.ToLower(string(r.Stream)) + times(r.Count)})
	}
	return fields
}

// wasRefused reports whether a program or a host was refused to a call's command, so that the message says what would pass.
func wasRefused(s *v1alpha1.ToolCallStatus) bool {
	return len(s.Refused) > 0 || s.Network != nil && len(s.Network.Denied) > 0
}

// refusalText explains the rules by which a program is refused.
var refusalText = map[string]string{
	"NotListed":      "the policy doesn't list it",
	"Interpreter":    "it is the interpreter of a script, and the policy doesn't list it",
	"Loader":         "a loader runs any file, so it can't be started by hand",
	"Name":           "the policy lists this multi-call program under other names",
	"Unnamed":        "the file has no name: it is in memory, or was removed",
	"Changed":        "another program than the one asked for was about to run, and its process was killed",
	"Unreadable":     "its process can't be looked at",
	"UnreadableFile": "the call's user may not read it",
}

// programFields list the programs that a call executed, and those that were refused to it.
func programFields(s *v1alpha1.ToolCallStatus) []cli.Field {
	var fields []cli.Field
	for _, p := range s.Executed {
		fields = append(fields, cli.Field{"Executed", p.Path + times(p.Count)})
	}
	if s.OmittedExecuted > 0 {
		fields = append(fields, cli.Field{"Executed", fmt.Sprintf("and other programs%s", times(s.OmittedExecuted))})
	}
	for _, p := range s.Refused {
		rule := p.Rule
		if text := refusalText[rule]; text != "" {
			rule += ": " + text
		}
		fields = append(fields, cli.Field{"Refused", fmt.Sprintf("%s%s (%s)", p.Path, times(p.Count), rule)})
	}
	if s.OmittedRefused > 0 {
		fields = append(fields, cli.Field{"Refused", fmt.Sprintf("and other programs%s", times(s.OmittedRefused))})
	}
	return fields
}

func times(count int64) string {
	if count == 1 {
		return ", once"
	}
	return fmt.Sprintf(", %d times", count)
}

// isolationFields say which walls held a call's processes.
func isolationFields(i *v1alpha1.Isolation) []cli.Field {
	if i == nil {
		return nil
	}
	landlock := "none"
	if i.LandlockABI > 0 {
		landlock = fmt.Sprintf("version %d", i.LandlockABI)
	}
	network, programs, namespace := string(i.Network), heldByKernel(i.Programs), ""
	switch {
	case i.NoNetwork != "":
		network += ": the node has no " + i.NoNetwork
	case i.OpenUDP:
		network += ", but for UDP, which is open"
	}
	if i.WeakPrograms {
		programs = "weak: names that were written out were compared with the list"
	}
	if i.UserNamespace != nil {
		namespace = map[bool]string{true: "of its own", false: "none, as far as can be seen inside"}[*i.UserNamespace]
	}
	return []cli.Field{
		{"User", cli.Optional("%d", i.User)}, {"User namespace", namespace}, {"Seccomp", string(i.Seccomp)}, {"Runtime class", i.RuntimeClass},
		{"Network", network}, {"Programs", programs}, {"Reading", heldByKernel(i.Reads)}, {"Writing", heldByKernel(i.Writes)},
		{"Signals", heldByKernel(i.Signals)}, {"Held by", string(i.Way)}, {"Landlock", landlock},
		{"Told apart by name only", strings.Join(i.NamesOnly, ", ")},
		{"Runs applets unseen", strings.Join(i.UnheldApplets, ", ")},
		{"Listed and writable", strings.Join(i.Writable, ", ")},
		{"Listed and not found", strings.Join(i.NotFound, ", ")},
	}
}

func heldByKernel(held bool) string {
	if held {
		return "held by the kernel"
	}
	return "not held"
}

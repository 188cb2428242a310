package reply

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
)

// MetaKey is the key of the fields in the _meta of answers, for programs. It has all but the output, which is the text. Some clients show
// models everything that an answer has, so only requests whose _meta has the key with true get it.
const MetaKey = "toolcall.dev/result"

// maxNamed is how many refused programs, or hosts, the last line names, maxName how many bytes of each.
const (
	maxNamed = 3
	maxName  = 60
)

// Encode makes the answer to a request with the given _meta, of at most limit characters. Every outcome but success sets isError, so that
// the model reacts to it.
func (r *Result) Encode(asked mcp.Meta, limit int) (*mcp.CallToolResult, error) {
	links := r.links(limit / 4)
	r.fit(limit - length(r.lastLine()) - growth - lengthOf(links))
	text := r.Output
	if end := r.lastLine(); end != "" {
		if r.Stream == nil {
			text = strings.TrimRight(text, "\n")
		}
		text += end
	}
	var fields mcp.Meta
	if asked[MetaKey] == true {
		raw, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encode the result of call %s: %w", r.Call, err)
		}
		fields = mcp.Meta{MetaKey: json.RawMessage(raw)}
	}
	content := []mcp.Content{&mcp.TextContent{Text: text}}
	if r.Image != nil {
		content = append(content, r.Image)
	}
	for _, link := range links {
		content = append(content, link)
	}
	return &mcp.CallToolResult{Meta: fields, Content: content, IsError: !r.Succeeded}, nil
}

// lastLine has the fields that a model needs, empty if there are none.
func (r *Result) lastLine() string {
	var facts []string
	add := func(name string, given bool, value any) {
		if given {
			facts = append(facts, fmt.Sprintf("%s: %v", name, value))
		}
	}
	number := func(name string, value *int64) { add(name, value != nil, ptr.Deref(value, 0)) }
	add("exit_code", r.ExitCode != nil, ptr.Deref(r.ExitCode, 0))
	add("retry_safe", r.RetrySafe != nil, ptr.Deref(r.RetrySafe, false))
	add("phase", r.Reason == ReasonNotFinished && r.Phase != "", r.Phase)
	add("call", r.Call != "", r.Call)
	add("session", r.Session != "" && !r.KnowsSession, r.Session)
	add("signal", r.Signal != "", r.Signal)
	add("truncated", r.Truncated || r.File != nil && r.File.Truncated, true)
	add("refused", len(r.Refused) > 0, quoted(r.Refused))
	add("denied_hosts", len(r.DeniedHosts) > 0, quoted(destinations(r.DeniedHosts)))
	if f := r.File; f != nil {
		add("sha256", f.SHA256 != "", f.SHA256)
		number("next_offset", f.NextOffset)
		number("matches", f.Matches)
		number("replaced", f.Replaced)
		add("changed", f.Changed, true)
	}
	if s := r.Stream; s != nil {
		add("next_offset", !s.Complete, s.NextOffset)
		add("complete", s.Complete, true)
		add("missing", s.Missing > 0, s.Missing)
	}
	if len(facts) == 0 && r.Succeeded {
		return ""
	}
	return "\n\n[" + strings.Join(append([]string{"reason: " + r.Reason}, facts...), ", ") + "]"
}

// destinations are hosts with their ports. A lookup has none.
func destinations(denied []v1alpha1.DeniedHost) []string {
	var all []string
	for _, d := range denied {
		if d.Port == 0 {
			all = append(all, d.Host)
			continue
		}
		all = append(all, net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port))))
	}
	return all
}

// quoted lists the first paths or hosts on one line: a command chooses them.
func quoted(names []string) string {
	return strings.Join(firstTexts(names, maxNamed, func(name string) string { return strconv.Quote(bounds.Text(name, maxName)) }), " ")
}

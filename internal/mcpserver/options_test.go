package mcpserver

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestHTTPOptions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args string
		want []string
	}{
		"only this machine":                {"", nil},
		"this machine over IPv6":           {"--address=[::1]:1", nil},
		"by name":                          {"--address=localhost:1", nil},
		"others with TLS":                  {"--address=:8443 --tls-cert-file=c --tls-private-key-file=k", nil},
		"others behind a proxy":            {"--address=:8443 --insecure-http", nil},
		"others in the clear":              {"--address=:8443", []string{"requests carry credentials", "--insecure-http"}},
		"any address in the clear":         {"--address=0.0.0.0:80", []string{"requests carry credentials"}},
		"a name that looks local":          {"--address=localhost.example.com:80", []string{"requests carry credentials"}},
		"no port":                          {"--address=localhost", []string{`--address "localhost": must be HOST:PORT`}},
		"a certificate without key":        {"--tls-cert-file=c", []string{"must be set together"}},
		"TLS and none":                     {"--tls-cert-file=c --tls-private-key-file=k --insecure-http", []string{"remove it"}},
		"audiences":                        {"--audience=a --audience=https://b", nil},
		"an empty audience":                {"--audience=a,", []string{"--audience must not be empty"}},
		"tokens passed":                    {"--pass-tokens", nil},
		"tokens passed for an audience":    {"--pass-tokens --audience=a", []string{"remove --audience"}},
		"a resource":                       {"--resource-url=https://mcp.example.com:8443 --authorization-servers=https://a.example.com/tenant", nil},
		"a resource with a path":           {"--resource-url=https://mcp.example.com/mcp", []string{`--resource-url: "https://mcp.example.com/mcp"`}},
		"a resource that is no website":    {"--resource-url=ftp://mcp.example.com", []string{`--resource-url: "ftp://mcp.example.com"`}},
		"issuers for nothing":              {"--authorization-servers=https://a.example.com", []string{"needs --resource-url"}},
		"an issuer in the clear":           {"--resource-url=https://m --authorization-servers=http://a.example.com", []string{`"http://a.example.com" must be the URL of an issuer`}},
		"no sessions and no calls":         {"--max-sessions=0 --max-calls-per-user=-1", []string{"--max-sessions=0", "--max-calls-per-user=-1"}},
		"no time":                          {"--session-timeout=0s", []string{"--session-timeout"}},
		"an origin":                        {"--allowed-origins=https://example.com,http://localhost:3000", nil},
		"an origin with a path":            {"--allowed-origins=https://example.com/", []string{`"https://example.com/"`}},
		"an origin that stands for many":   {"--allowed-origins=*", []string{`"*" must be a scheme and a host`}},
		"an origin that names the nothing": {"--allowed-origins=null", []string{`"null"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, fs := &HTTPOptions{}, pflag.NewFlagSet("", pflag.ContinueOnError)
			o.Bind(fs)
			if err := fs.Parse(strings.Fields(test.args)); err != nil {
				t.Fatal(err)
			}
			err := o.Validate()
			if (err == nil) != (test.want == nil) {
				t.Fatalf("got %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in: %v", want, err)
				}
			}
		})
	}
}

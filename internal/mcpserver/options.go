package mcpserver

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/serving"
	"toolcall.dev/operator/internal/serving/limits"
)

// HTTPOptions are the flags of the HTTP transport.
type HTTPOptions struct {
	serving.Flags
	AllowedOrigins []string
	TrustedProxies []string

	// Audiences are those of tokens that are meant for the server; defaultAudience if empty.
	Audiences  []string
	PassTokens bool
	// ResourceURL and AuthorizationServers are in the metadata of RFC 9728; there is none without the URL.
	ResourceURL          string
	AuthorizationServers []string

	MaxConnections, MaxConnectionsPerAddress              int
	MaxSessions, MaxSessionsPerTenant, MaxSessionsPerUser int
	MaxCalls, MaxCallsPerTenant, MaxCallsPerUser          int
	SessionTimeout, DrainTimeout                          time.Duration
	// MaxAnswer is how many characters an answer has at most.
	MaxAnswer int
}

// BindMaxAnswer defines the flag for the size of answers.
func BindMaxAnswer(fs *pflag.FlagSet, value *int) {
	fs.IntVar(value, "max-answer", reply.DefaultLimit, "maximum number of characters of an answer; it says where the rest is")
}

// CheckMaxAnswer returns an error for a size of answers that is too small.
func CheckMaxAnswer(value int) error {
	if value < reply.MinLimit {
		return fmt.Errorf("--max-answer=%d: must be at least %d", value, reply.MinLimit)
	}
	return nil
}

// defaultAudience is the audience of tokens that are meant for the server.
const defaultAudience = "toolcall-mcp"

// Bind defines the flags.
func (o *HTTPOptions) Bind(fs *pflag.FlagSet) {
	o.Flags.Bind(fs, "agents", "/healthz, /readyz and /metrics")
	fs.StringSliceVar(&o.AllowedOrigins, "allowed-origins", nil, "origins of web pages that may send requests, such as https://example.com (default: none)")
	fs.StringSliceVar(&o.TrustedProxies, "trusted-proxies", nil, "addresses or networks of proxies in front of the server, such as 10.0.0.0/8, whose X-Forwarded-For header names the client (default: none, the header is ignored)")
	fs.StringSliceVar(&o.Audiences, "audience", nil, "audience of the tokens that are meant for this server; if several are given, a token needs one of them (default "+defaultAudience+")")
	fs.BoolVar(&o.PassTokens, "pass-tokens", false, "accept the tokens of the API server, and send them on to it, instead of acting for callers by constrained impersonation, which needs Kubernetes 1.36")
	fs.StringVar(&o.ResourceURL, "resource-url", "", "scheme and host that clients reach the server at, such as https://mcp.example.com, for OAuth's metadata of protected resources (default: none is served)")
	fs.StringSliceVar(&o.AuthorizationServers, "authorization-servers", nil, "OAuth issuers of tokens for this server, for that metadata (default: none)")
	fs.IntVar(&o.MaxConnections, "max-connections", 4096, "maximum number of open connections")
	fs.IntVar(&o.MaxConnectionsPerAddress, "max-connections-per-address", 512, "maximum number of open connections from one address; trusted proxies have no limit of their own")
	fs.IntVar(&o.MaxSessions, "max-sessions", 512, "maximum number of open sessions")
	fs.IntVar(&o.MaxSessionsPerTenant, "max-sessions-per-tenant", 256, "maximum number of open sessions of one tenant: all ServiceAccounts of a namespace, or one other user")
	fs.IntVar(&o.MaxSessionsPerUser, "max-sessions-per-user", 64, "maximum number of open sessions of one user")
	fs.IntVar(&o.MaxCalls, "max-calls", 512, "maximum number of running calls")
	fs.IntVar(&o.MaxCallsPerTenant, "max-calls-per-tenant", 256, "maximum number of running calls of one tenant")
	fs.IntVar(&o.MaxCallsPerUser, "max-calls-per-user", 64, "maximum number of running calls of one user")
	BindMaxAnswer(fs, &o.MaxAnswer)
	fs.DurationVar(&o.SessionTimeout, "session-timeout", time.Hour, "how long a session without requests stays open")
	fs.DurationVar(&o.DrainTimeout, "drain-timeout", 10*time.Second, "how long running calls may take to finish when the server stops, before it cancels them")
}

// Validate returns all errors of the flags.
func (o *HTTPOptions) Validate() error {
	invalid := []error{o.Flags.Validate(), CheckMaxAnswer(o.MaxAnswer), serving.CheckPositive(map[string]int{
		"max-connections": o.MaxConnections, "max-connections-per-address": o.MaxConnectionsPerAddress,
		"max-sessions": o.MaxSessions, "max-sessions-per-tenant": o.MaxSessionsPerTenant, "max-sessions-per-user": o.MaxSessionsPerUser,
		"max-calls": o.MaxCalls, "max-calls-per-tenant": o.MaxCallsPerTenant, "max-calls-per-user": o.MaxCallsPerUser,
	})}
	if o.SessionTimeout <= 0 {
		invalid = append(invalid, fmt.Errorf("--session-timeout=%s: must be positive", o.SessionTimeout))
	}
	if o.DrainTimeout < 0 {
		invalid = append(invalid, fmt.Errorf("--drain-timeout=%s: must not be negative", o.DrainTimeout))
	}
	if _, err := limits.ParseProxies(o.TrustedProxies); err != nil {
		invalid = append(invalid, fmt.Errorf("--trusted-proxies: %w", err))
	}
	for _, origin := range o.AllowedOrigins {
		if !isOrigin(origin) {
			invalid = append(invalid, fmt.Errorf("--allowed-origins: %q must be a scheme and a host, such as https://example.com", origin))
		}
	}
	return errors.Join(append(invalid, o.checkIdentity()...)...)
}

// isOrigin reports whether a text is a scheme and a host, and nothing else.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && u.Scheme+"://"+u.Host == strings.ToLower(text)
}

// checkIdentity returns the errors of the flags about tokens.
func (o *HTTPOptions) checkIdentity() (invalid []error) {
	if o.PassTokens && len(o.Audiences) > 0 {
		invalid = append(invalid, errors.New("--pass-tokens accepts the tokens of the API server: remove --audience"))
	}
	if slices.Contains(o.Audiences, "") {
		invalid = append(invalid, errors.New("--audience must not be empty"))
	}
	if o.ResourceURL != "" && (!isOrigin(o.ResourceURL) || !strings.HasPrefix(o.ResourceURL, "https://") && !strings.HasPrefix(o.ResourceURL, "http://")) {
		invalid = append(invalid, fmt.Errorf("--resource-url: %q must be a scheme and a host, such as https://mcp.example.com", o.ResourceURL))
	}
	if o.ResourceURL == "" && len(o.AuthorizationServers) > 0 {
		invalid = append(invalid, errors.New("--authorization-servers is for the metadata, which needs --resource-url"))
	}
	for _, issuer := range o.AuthorizationServers {
		// RFC 8414 has no other characters after the path.
		if u, err := url.Parse(issuer); err != nil || u.Scheme != "https" || u.Host == "" || strings.ContainsAny(issuer, "?#") {
			invalid = append(invalid, fmt.Errorf("--authorization-servers: %q must be the URL of an issuer, such as https://login.example.com", issuer))
		}
	}
	return invalid
}

// audiences are those of tokens that are meant for the server.
func (o *HTTPOptions) audiences() []string {
	if len(o.Audiences) > 0 {
		return o.Audiences
	}
	return []string{defaultAudience}
}

// sources finds out which addresses requests come from. The options must be valid.
func (o *HTTPOptions) sources() *limits.Sources {
	proxies, _ := limits.ParseProxies(o.TrustedProxies)
	return &limits.Sources{Proxies: proxies}
}

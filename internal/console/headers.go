package console

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	// pagePolicy lets the page run the console's own scripts and nothing else: no other host, no frame, no inline script, no
	// string that becomes markup.
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	// dataPolicy is for what isn't the page: if a browser shows it in spite of all, it can do nothing.
	dataPolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
)

// setHeaders sets the headers that every answer has.
func setHeaders(h http.Header) {
	for name, value := range map[string]string{
		"Content-Security-Policy":      dataPolicy,
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Cross-Origin-Embedder-Policy": "require-corp",
		"Cache-Control":                "no-store",
	} {
		h.Set(name, value)
	}
}

// errOtherSite says that a browser sent a request for another site's page.
var errOtherSite = errors.New("requests of other sites' pages are refused")

// errNoOrigin says that a decision doesn't say which page it comes from. Every browser says so of a POST.
var errNoOrigin = errors.New("a decision needs the header Origin, once, with the console's own origin")

// checkSite refuses requests that a browser says another site's page sent, and decisions that don't come from the console's page.
func checkSite(r *http.Request) error {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return errOtherSite
	}
	origins := r.Header.Values("Origin")
	if r.Method == http.MethodPost && len(origins) != 1 {
		return errNoOrigin
	}
	for _, origin := range origins {
		if !isOwnOrigin(origin, r) {
			return errOtherSite
		}
	}
	return nil
}

// isOwnOrigin says whether an origin is that of a request's host. Where a proxy terminates TLS, the scheme isn't known.
func isOwnOrigin(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host) && (r.TLS == nil || u.Scheme == "https")
}

// isHost says whether a request names one of the hosts, with whatever port.
func isHost(requested string, hosts []string) bool {
	name := requested
	if host, _, err := net.SplitHostPort(requested); err == nil {
		name = host
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	return slices.Contains(hosts, name)
}

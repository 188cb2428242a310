// Package docurl says where the documentation's pages are, for programs that run without a checkout of the project.
//
// The alerts of config/monitoring lead to the same pages. The package must not read a page.
package docurl

import "strings"

// base is where the files of docs are published, without a slash at its end. Whoever publishes them sets it when linking:
//
//	-ldflags "-X toolcall.dev/operator/internal/docurl.base=https://example.com/docs"
//
// Otherwise pages are named by their path in the project's sources.
var base string

// Page returns the address of a file of docs, such as output.md; its path if the address isn't known.
func Page(file string) string {
	if base == "" {
		return "docs/" + file
	}
	return base + "/" + file
}

// Reason returns the address of the section about a reason of a call, a session, an environment or a policy.
func Reason(reason string) string { return Page("troubleshooting.md#" + strings.ToLower(reason)) }

// Package docurl knows the addresses of the documentation's pages, for programs that run without a checkout of the project.
//
// The alerts of config/monitoring lead to the same pages. The package must not read a page.
package docurl

import "strings"

// base is where the files of docs are published.
const base = "https://toolcall.dev/docs/"

// Page returns the address of a file of docs, such as output.md.
func Page(file string) string { return base + file }

// Reason returns the address of the section about a reason of a call, a session, an environment or a policy.
func Reason(reason string) string { return Page("troubleshooting.md#" + strings.ToLower(reason)) }

// Package reply makes answers of tools, for a model and for programs.
//
// Input is the state of a call, or what a tool found out. Output is a result of the protocol. result.go has the fields, text.go the text,
// listing.go lists of files, words.go the names of arguments in messages, size.go cuts what is too long, environments.go has the list of
// environments and artifact.go files that calls kept.
//
// Invariants: the text alone has everything that a model needs, as some clients show nothing else and others show nothing but the structured
// part, so that there is none; what programs ask for besides is in _meta; the last line is always the server's own; no answer is longer than
// the limit; names of files that could pass for something else are quoted.
package reply

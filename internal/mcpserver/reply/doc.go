// Package reply makes answers of tools, for a model and for programs.
//
// Input is the state of a call, or what a tool found out. Output is a result of the protocol. result.go has the fields, environments.go the
// list of environments.
//
// Invariants: the text alone has everything that a model needs; what a command wrote can't pass for the server's own last line as long as
// that is the last one.
package reply

// Package celrules compiles and evaluates the rules of a policy: expressions in CEL over a call, its action, its caller, its environment
// and its session.
//
// Input of Compile are the rules of a policy, of Evaluate what is known of one call. The answer is a denial, or the rules that are true
// and ask for approval.
//
// Invariants: whatever keeps a rule from giving a boolean denies: an error, a type that isn't expected, a cost above the limits, an input
// that is too large, a panic. Work is bounded twice: a rule whose cost for an ordinary call is above the limit doesn't compile, and an
// evaluation that goes above it ends. Functions and macros are a fixed list. CEL charges for a function after it has run, so that none may
// make much out of little: there are no map, join, replace and format. What is compared, matched and measured costs what there is to read.
//
// The package must not read a clock, run programs, or talk to a cluster.
package celrules

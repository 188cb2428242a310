// Package reliability measures what the operator and a runner cost: the figures of docs/reliability.md.
//
// The operator's own program runs against an API server of its own, without a node: calls that have ended cost it
// what they cost whether or not a pod ran them. The runner's own program dials a listener of the operator's. The
// measurements run with TOOLCALL_MEASURE=1 and print a table; `make bench-footprint` does that. They have ceilings,
// far above what was measured, so that a leak fails.
package reliability

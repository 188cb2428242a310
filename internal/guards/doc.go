// Package guards decides whether a tool call may run.
//
// Its input is a call that Map has mapped to one action, the call's requester and variables, and a policy that Compile
// has compiled once for each generation. Policy.Check returns nil, or one Denial with a stable reason and a message that
// says which part of the call was refused, by which field of the policy, and what would pass.
//
// Policy.Enforcement says what holds the list of programs. Under Kernel the kernel of the node does, and a guard only
// refuses names that are written out: an early answer. Under Name the same comparison is all there is, and what isn't
// written out is refused: it is weak.
//
// Invariants: guards run in a fixed order and stop at the first denial. A call is denied if a guard fails or panics.
// Messages depend on the input alone. The work is proportional to the size of the input.
//
// The package must not run programs, use the network or a cluster, read a clock or the file system, or keep state that
// changes. The caller of Check passes a function that answers whether the requester may use a tool. The search of sources
// is a signal; isolation of the pod is what holds when it is fooled.
package guards

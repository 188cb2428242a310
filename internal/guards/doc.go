// Package guards decides whether a tool call may run.
//
// Its input is a call that Map has mapped to one action, the call's requester and variables, and a policy that Compile
// has compiled once for each generation. Policy.Judge returns what is to run, or one Denial with a stable reason and a
// message that says which part of the call was refused, by which field of the policy, and what would pass.
//
// Policy.Enforcement says what holds the list of programs. Under Kernel the kernel of the node does, and a guard only
// refuses names that are written out. Under Text guards do: they accept the part of bash on which parsers agree, and the
// verdict holds the script as printed from the syntax tree that was judged, which alone may run.
//
// Invariants: guards run in a fixed order and stop at the first denial. A call is denied if a guard fails or panics and,
// under Text, if a part of it can't be checked. Messages depend on the input alone. The work is proportional to the size
// of the input.
//
// The package must not run programs, use the network or a cluster, read a clock or the file system, or keep state that
// changes. The caller of Judge passes a function that answers whether the requester may use a tool. The search of sources
// is a signal; isolation of the pod is what holds when it is fooled.
package guards

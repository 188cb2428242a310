// Package guards decides whether a tool call may run.
//
// Input is a call mapped onto one action (Map), its caller and variables, and a policy that was compiled
// once per generation (Compile). The answer of Policy.Check is nil, or one Denial with a stable reason and
// a message that says which part was refused, by which field of the policy, and what would pass.
//
// Invariants: guards run in the order that the specification gives and stop at the first denial; what
// can't be judged is refused, and so is a call whose guard returned an error or panicked; messages are
// the same for the same input. Work is bounded by the size of the input.
//
// The package must not run anything, talk to a cluster or a network, read a clock or the file system, or
// keep state that changes: the right to use a tool is asked through a function that the caller passes in.
// Static checks are a signal, never the only wall.
package guards

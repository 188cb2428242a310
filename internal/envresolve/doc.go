// Package envresolve decides which variables a call's process gets and which directory it starts in.
//
// It does so in two steps. The operator knows the default environment, the skill, the environment that the call names,
// and the call: MakePlan makes a Plan of them. The variables of the image, and the values of Secrets and ConfigMaps, are
// known only inside of the pod: there Resolve completes the plan, and ResolveDir decides on the directory.
//
// Inputs are plain values: variables with a literal value or a reference, the variables of the image as KEY=VALUE, and
// a file system as the interface FS. A reference is the name of the runner's own variable into which the kubelet has put
// the value, so that the value doesn't pass through the operator.
//
// Invariants:
//   - The same input gives the same output, byte for byte, whatever the order of variables in a layer.
//   - Each variable is decided by itself. The call goes before the named environment, then come the skill, the default
//     environment and the image.
//   - A variable with a blocked name never comes from the image, and from a layer only if the plan is trusted.
//   - The runner's own variables never reach the process. Neither do variables of the image with other characters than
//     letters, digits and underscores in their name, under which a shell function can be exported.
//   - Whatever can't be decided is an error; nothing is truncated or guessed. Errors hold names of variables and paths,
//     never values.
//
// The package must not do I/O, read a clock, keep state, or import a Kubernetes client, os/exec, net or the project's
// API packages: it is linked into the small supervisor that runs in every pod.
package envresolve

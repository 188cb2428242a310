// Package envresolve decides which variables a call's process gets and which directory it starts in.
//
// The work is done in two halves with the same code. The controller knows the default environment, the
// skill, the environment that the call names, and the call: MakePlan turns them into a Plan. Only inside
// the pod are the image's variables known, and the values behind references to Secrets and ConfigMaps:
// there Resolve finishes the plan, and ResolveDir decides on the directory.
//
// Inputs are plain values: variables as name and literal value or name and reference, the image's
// variables as KEY=VALUE, a file system as the small interface FS. A reference is the name under which
// the kubelet put the value into the runner's own variables, so that no value behind one passes
// through the controller.
//
// Invariants:
//   - The same input gives the same output, byte for byte, whatever the order of variables in a layer.
//   - Each variable is decided alone: call over named environment over skill over default over image.
//   - A blocked name never comes from the image, and from no layer unless the plan is trusted.
//   - The runner's own variables never reach the process, nor does an image variable whose name isn't
//     letters, digits and underscores (a shell function can be exported under such a name).
//   - What can't be decided is an error; nothing is cut short or guessed. An error names variables and
//     paths, never a value.
//
// The package must not do I/O, read a clock, hold state, or import a Kubernetes client, os/exec, net or
// the project's api packages: it is linked into the small supervisor that runs in every pod.
package envresolve

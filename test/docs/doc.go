// Package docs tests what the documentation says: links and anchors, the programs and samples that it shows, and
// every command of its pages, run in order on the local cluster. Pages are found by their place (*.md,
// docs/*.md), so that a new one is tested without being named here.
//
// What needs the cluster runs when TOOLCALL_E2E=1, with the operator installed and the tool image loaded, as
// `make test` sets it up; a cluster that isn't there is a failure then. `make test` tries the manifests of all pages, and
// the commands of the README and of the tutorial. `make test-full` runs the commands of every page, the samples and the
// example programs.
//
// Everything that is made there is taken away again, also what an earlier run that was killed left behind.
package docs

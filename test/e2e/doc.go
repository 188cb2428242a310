// Package e2e tests the deployed operator on a real node: what a person with kubectl, or an agent's client,
// gets to see, byte for byte.
//
// The tests need the local cluster with the tool image loaded and the operator installed, as `make test` sets
// it up, and say so when they are skipped: they run when TOOLCALL_E2E=1, and then a cluster that isn't there is
// a failure. Each test has a namespace and a policy of its own and takes them away again. Tests wait on
// watches; where the thing to wait for isn't in the API (a process on the node), they look again and again.
//
// Those that disturb the operator or the whole cluster are not parallel, so that they run alone.
package e2e

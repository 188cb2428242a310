// Package api holds the tests of what the API server does with the project's kinds: the schemas, the admission policies
// and the roles that config/ installs, against a real API server.
//
// The tests install config/default as a user does. They run no operator: what they show holds without one. They need
// KUBEBUILDER_ASSETS, and are skipped without it.
package api

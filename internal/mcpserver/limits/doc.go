// Package limits bounds what one user, tenant or address can use of a server: connections and running operations.
//
// It knows neither the protocol nor Kubernetes. Keys are names of users and tenants, and source addresses. No key can use up a resource
// that others need, and everything that is kept for a key is bounded.
package limits

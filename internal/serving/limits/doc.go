// Package limits bounds what one address or tenant can use of a server: connections and running operations.
//
// It knows neither the protocol nor Kubernetes. Keys are source addresses, or other names of who shares. No key can use up a resource
// that others need, and everything that is kept for a key is bounded.
package limits

// Package host is the machine's side of the cluster: it makes the namespaces
// with their supervisor inside, the link to them and the cgroups, finds a
// running cluster again, and takes everything away.
package host

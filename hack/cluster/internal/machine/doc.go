// Package machine looks at the machine before anything is built or started:
// cgroups, capabilities, networks in use, and missing Debian packages. It
// changes nothing but the node's control groups, which it makes and removes.
package machine

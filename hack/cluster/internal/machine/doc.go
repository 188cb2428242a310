// Package machine looks at the machine before anything is built or started:
// cgroups, capabilities, networks in use, and missing Debian packages. Except
// for Install it only reads.
package machine

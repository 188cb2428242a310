// Package scripts tests the functions of hack/lib.sh.
package scripts

// Package scripts tests the functions of hack/lib.sh and hack/stages.sh.
package scripts

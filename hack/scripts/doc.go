// Package scripts tests the scripts of hack/ and the Makefile.
package scripts

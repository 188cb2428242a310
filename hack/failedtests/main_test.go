package main

import (
	"strings"
	"testing"
)

func TestFailedTestsAreListed(t *testing.T) {
	t.Parallel()
	const failed = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/part"}
{"Action":"fail","Package":"p","Test":"TestA/part"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
`
	for name, tc := range map[string]struct {
		events, lines string
		isWhole       bool
	}{
		"tests":                     {failed, "p TestA\n", true},
		"a package doesn't compile": {failed + `{"Action":"fail","Package":"q"}`, "p TestA\n", false},
		"a test that didn't end":    {failed + `{"Action":"run","Package":"p","Test":"TestC"}`, "p TestA\n", false},
		"a panic":                   {`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: nil\n"}` + "\n" + failed, "p TestA\n", false},
		"nothing":                   {`{"Action":"pass","Package":"p"}`, "", true},
	} {
		if lines, isWhole := failures(read(strings.NewReader(tc.events))); lines != tc.lines || isWhole != tc.isWhole {
			t.Errorf("%s: %q, %t", name, lines, isWhole)
		}
	}
}

// Package convert turns the TOML configuration that agents' shell tools have into manifests: a table array
// of named environments becomes ExecutionEnvironments, a table of limits an ExecutionPolicy.
//
// Input is the text of one document; the tables are found by the keys they hold, wherever they stand, since
// their names differ between programs. Output is YAML, and remarks on what was taken, changed and left out.
//
// Invariants:
//   - The same document and options give the same bytes.
//   - What is ambiguous or would be refused by the API is an error, and with an error no manifest comes out.
//   - Where the old meaning isn't certain the stricter reading is taken, with a remark that says how to
//     get the other one. Nothing that is left out goes unmentioned.
//   - A remark names keys, environments and variables, never a variable's value.
//
// The package must not read files, talk to a cluster, or apply what it makes.
package convert

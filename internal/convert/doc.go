// Package convert converts the TOML configuration of agents' shell tools to manifests: a table array of named
// environments becomes ExecutionEnvironments, a table of limits becomes an ExecutionPolicy.
//
// Input is the text of one document. The package finds the tables by their keys, because their names differ between
// programs. Output is YAML, and remarks on what was converted, changed and left out.
//
// Invariants:
//   - The same document and options give the same bytes.
//   - Anything ambiguous is an error. With an error there are no manifests. The bounds of the API are for the API server to check.
//   - Where the old meaning is uncertain, the conversion chooses the stricter one, and a remark says how to get the
//     other. A remark mentions everything that is left out of the converted tables.
//   - A remark names keys, environments and variables, never the value of a variable.
//
// The package must not read files, talk to a cluster, or apply manifests.
package convert

package supervisor

import "testing"

// VariableFilesName is the directory of the files of variables.
const VariableFilesName = variableFilesName

// SetTemporaryDir puts the files of variables into a directory of the test's own.
func SetTemporaryDir(t testing.TB, dir string) {
	before := temporaryDir
	temporaryDir = dir
	t.Cleanup(func() { temporaryDir = before })
}

package supervisor

import "testing"

// PrivateFilesName is the directory of private files.
const PrivateFilesName = privateFilesName

// SetTemporaryDir puts private files into a directory of the test's own.
func SetTemporaryDir(t testing.TB, dir string) {
	before := temporaryDir
	temporaryDir = dir
	t.Cleanup(func() { temporaryDir = before })
}

// ForeignMountsIn are those of a mountinfo.
func ForeignMountsIn(mountinfo string) []string { return foreignMounts([]byte(mountinfo)) }

package kernel

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWhatHasBecomeALinkIsGrantedNothing(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	abi := landlockABI()
	if abi == 0 {
		t.Skip("this machine has no Landlock")
	}
	set, err := NewRuleSet(AccessRead, 0, abi)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	for _, path := range []string{dir + "/link", dir + "/link/etc"} {
		if set.AllowPath(path, AccessRead); set.Err() != nil || set.rules != 0 {
			t.Errorf("%s: %v, %d rules", path, set.Err(), set.rules)
		}
	}
	if set.AllowPath(dir, AccessRead); set.Err() != nil || set.rules != 1 {
		t.Errorf("%s: %v, %d rules", dir, set.Err(), set.rules)
	}
	if set.Allow(-1, AccessRead); set.Err() == nil {
		t.Error("no error of a file that isn't there")
	}
}

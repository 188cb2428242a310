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
		if err := set.AllowPath(path, AccessRead); err != nil || set.Rules() != 0 {
			t.Errorf("%s: %v, %d rules", path, err, set.Rules())
		}
	}
	if err := set.AllowPath(dir, AccessRead); err != nil || set.Rules() != 1 {
		t.Errorf("%s: %v, %d rules", dir, err, set.Rules())
	}
}

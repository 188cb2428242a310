package image

import "path/filepath"

// CacheDir is where built things are kept, outside any checkout.
func CacheDir(getenv func(string) string) string {
	if dir := getenv("TOOLCALL_CACHE"); dir != "" {
		return filepath.Clean(dir)
	}
	base := getenv("XDG_CACHE_HOME")
	if base == "" {
		base = filepath.Join(getenv("HOME"), ".cache")
	}
	return filepath.Join(base, "toolcall-operator")
}

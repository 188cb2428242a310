package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Pause builds the sandbox image from the folder images/pause below source, or
// finds it in the cache, and returns its tarball.
func Pause(source, cache, tag string) (string, error) {
	program, err := os.ReadFile(filepath.Join(source, "images", "pause", "main.go"))
	if err != nil {
		return "", fmt.Errorf("reading the pause program: %w", err)
	}
	sum := sha256.Sum256(append(program, tag...))
	path := filepath.Join(cache, "images", "pause-"+hex.EncodeToString(sum[:6])+".tar")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, buildPause(source, path, tag)
}

func buildPause(source, path, tag string) error {
	dir, err := os.MkdirTemp("", "pause-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "pause")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", binary, "./images/pause")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("building the pause program: %w", err), errors.New(string(out)))
	}
	return Binary{
		Tag: tag, Config: v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"}, Files: []File{{Source: binary, Target: "/pause"}},
	}.Write(path)
}

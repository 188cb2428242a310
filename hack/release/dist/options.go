// Package dist makes a release: images, manifests, the chart, plugin archives, client libraries, bills of materials, checksums.
//
// It is given a checkout and a version, and writes one folder, whole or not at all. The same checkout, version and
// Go toolchain give the same bytes. It pushes nothing and talks to no cluster; the go command may fetch modules.
package dist

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/name"
)

// Options of a release.
type Options struct {
	// Source is the checkout, and Out the folder to write.
	Source, Out string
	// Version as in v1.2.3.
	Version string
	// Registry and path that the images will be pushed below, as in registry.example.com/team.
	Registry string
	// Commit that the checkout is at.
	Commit string
	// SourceURL and Licenses are what the images say of themselves; left out when empty.
	SourceURL, Licenses string
	// DocsURL is where the files of docs are published; programs name their paths when empty.
	DocsURL string
	// Architectures of the images.
	Architectures []string
	// PluginPlatforms as in linux/amd64; none leaves the plugin out.
	PluginPlatforms []string
	// Clients are the languages whose client library is packed, as folders of clients/; none leaves them out.
	Clients []string
	// DownloadURL is where the plugin's archives will be, for krew's manifest; without it there is none.
	DownloadURL string
	// Say is told what is being done.
	Say func(format string, args ...any)
}

var (
	commitPattern   = regexp.MustCompile(`^[0-9a-f]{7,64}(\+changes)?$`)
	registryPattern = regexp.MustCompile(`^[a-zA-Z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)*$`)
	platformPattern = regexp.MustCompile(`^[a-z0-9]+/[a-z0-9]+$`)
	docsPattern     = regexp.MustCompile(`^(https?://[^\s"'#?]*[^\s"'#?/])?$`)
	architectures   = []string{"amd64", "arm64"}
	languages       = []string{"python", "typescript"}
)

// Validate says what is missing or can't be.
func (o *Options) Validate() error {
	var wrong []error
	check := func(isGood bool, format string, args ...any) {
		if !isGood {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	_, err := semver.StrictNewVersion(strings.TrimPrefix(o.Version, "v"))
	check(err == nil && strings.HasPrefix(o.Version, "v"), "version %q: say a semantic version with a v, as in v1.2.3", o.Version)
	check(!strings.Contains(o.Version, "+"), "version %q: an image's tag can't have build metadata (+...)", o.Version)
	_, err = name.NewRepository(o.image("manager"), name.StrictValidation)
	check(err == nil && registryPattern.MatchString(o.Registry),
		"registry %q: say where the images will be pulled from, as in registry.example.com/team", o.Registry)
	check(commitPattern.MatchString(o.Commit), "commit %q: say the hash of the commit", o.Commit)
	check(len(o.Architectures) > 0, "no architectures: say amd64, arm64 or both")
	for _, arch := range o.Architectures {
		check(slices.Contains(architectures, arch), "architecture %q: the runner's filter of system calls knows %v", arch, architectures)
	}
	for _, platform := range o.PluginPlatforms {
		check(platformPattern.MatchString(platform), "platform %q: say it as in linux/amd64", platform)
	}
	for _, language := range o.Clients {
		check(slices.Contains(languages, language), "client %q: there are clients for %v", language, languages)
	}
	check(o.DownloadURL == "" || strings.HasPrefix(o.DownloadURL, "https://"), "download address %q: krew takes https:// only", o.DownloadURL)
	check(docsPattern.MatchString(o.DocsURL), "address of the documentation %q: say it as in https://example.com/docs", o.DocsURL)
	check(o.Out != "" && o.Source != "", "say the folder of the checkout and the folder to write")
	return errors.Join(wrong...)
}

// image is the full name of an image, without its tag.
func (o *Options) image(program string) string { return o.Registry + "/toolcall-" + program }

// Package files has the commands that carry files: cp into sessions and out of them, artifacts from finished calls.
//
// Invariants: a local file appears whole or not at all; what a session or a call chose is never a path outside of the folder that the
// user names, and is never run.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"toolcall.dev/operator/api/v1alpha1"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/plugin/cli"
)

// Commands are the commands that carry files.
func Commands(c *cli.CLI) []*cobra.Command { return []*cobra.Command{newCp(c), newArtifacts(c)} }

const cpLong = `Copy a file or a directory into a session or out of it.

SESSION:PATH names a file of a session; PATH is absolute, or relative to the session's working directory. Write a local name
that has a colon as ./NAME. "-" is standard input or standard output. What exists is replaced. A file appears whole or not at
all, here and there, and its SHA-256 is compared.

-r copies a directory with what is in it and its permission bits: regular files, directories, and symbolic links that stay in
it. Others are left out, with a note. A local directory must not be there yet, or be one to copy into.

The policy of the session's environment says which paths may be read and written. It needs permission to get and update
toolsessions/proxy in the group subresources.toolcall.dev, which the ClusterRole toolcall-user grants, and to be the session's
creator or to use the session.`

const cpExample = `  kubectl toolcall cp data.csv demo:/workspace/data.csv
  kubectl toolcall cp demo:/workspace/plot.png .
  kubectl toolcall cp demo:result.json - | jq .
  pg_dump shop | kubectl toolcall cp - demo:/tmp/shop.sql
  kubectl toolcall cp -r ./src demo:/workspace/src`

func newCp(c *cli.CLI) *cobra.Command {
	var recursive, quiet bool
	command := &cobra.Command{
		Use:               "cp [-r] FROM TO",
		Short:             "Copy files into a session or out of it",
		Long:              cpLong,
		Example:           cpExample,
		ValidArgsFunction: completeCopy(c),
		RunE: c.Connected(func(ctx context.Context, cluster *cli.Cluster, args []string) error {
			from, to, err := parseCopy(args)
			if err != nil {
				return err
			}
			o := &copying{Cluster: cluster, progress: newTransferProgress(c, quiet)}
			defer o.progress.end()
			ctx, stop := cli.EndedBySignals(ctx)
			defer stop()
			return o.run(ctx, from, to, recursive)
		}),
	}
	command.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy a directory with what is in it")
	command.Flags().BoolVarP(&quiet, "quiet", "q", false, "print no progress")
	return command
}

// completeCopy completes sessions, with a colon, and local files.
func completeCopy(c *cli.CLI) cli.Completer {
	return func(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= 2 || strings.ContainsAny(prefix, "/:") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		names, directive := c.Complete(cli.ListSessions)(nil, nil, prefix)
		if directive == cobra.ShellCompDirectiveError || len(names) == 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		for i := range names {
			names[i] += ":"
		}
		return names, cobra.ShellCompDirectiveNoSpace
	}
}

// place is one side of a copy: a local path, or a path in a session.
type place struct{ session, path string }

func (p place) String() string {
	if p.session == "" {
		return p.path
	}
	return p.session + ":" + p.path
}

const standardStream = "-"

func parseCopy(args []string) (from, to place, err error) {
	if len(args) != 2 || args[0] == "" || args[1] == "" {
		return from, to, errors.New("specify what to copy and where to: kubectl toolcall cp FILE SESSION:PATH, or SESSION:PATH FILE")
	}
	from, to = parsePlace(args[0]), parsePlace(args[1])
	switch {
	case from.session == "" && to.session == "":
		return from, to, fmt.Errorf("neither %s nor %s is in a session: write one as SESSION:PATH", from, to)
	case from.session != "" && to.session != "":
		return from, to, fmt.Errorf("%s and %s are both in sessions: copy to a local file first", from, to)
	case from.path == "" || to.path == "":
		return from, to, errors.New("the path after the colon is empty: write SESSION:PATH, as in demo:/workspace/file")
	default:
		return from, to, nil
	}
}

// parsePlace takes for a session what is before the first colon and can be the name of one.
func parsePlace(text string) place {
	session, inside, ok := strings.Cut(text, ":")
	if !ok || len(validation.IsDNS1123Subdomain(session)) > 0 {
		return place{path: text}
	}
	return place{session, inside}
}

// copying is one run of cp.
type copying struct {
	*cli.Cluster
	progress *transferProgress
}

func (o *copying) run(ctx context.Context, from, to place, recursive bool) error {
	var err error
	switch {
	case recursive && (from.path == standardStream || to.path == standardStream):
		return errors.New("-r copies directories, and \"-\" is a stream: leave one out")
	case recursive && from.session == "":
		err = o.uploadDirectory(ctx, from, to)
	case recursive:
		err = o.downloadDirectory(ctx, from, to)
	case from.session == "":
		err = o.upload(ctx, from, to)
	default:
		err = o.download(ctx, from, to)
	}
	if err != nil {
		return fmt.Errorf("copy %s to %s: %w", from, to, explainFiles(err, to))
	}
	return nil
}

func (o *copying) file(p place) outputclient.File {
	return outputclient.File{Namespace: o.Namespace, Session: p.session, Path: p.path}
}

// explainFiles says what somebody can do about an answer.
func explainFiles(err error, to place) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err
	}
	switch reason := status.Status().Reason; {
	case reason == v1alpha1.ReasonIsDirectory && to.session != "":
		return fmt.Errorf("%w: to copy into a directory, end its path with a slash", err)
	case reason == v1alpha1.ReasonIsDirectory:
		return fmt.Errorf("%w: to copy a directory, use -r", err)
	case reason == "Forbidden" && strings.Contains(err.Error(), "toolsessions/proxy"):
		return fmt.Errorf("%w: the ClusterRole toolcall-user grants it", err)
	default:
		return err
	}
}

func (o *copying) upload(ctx context.Context, from, to place) error {
	if strings.HasSuffix(to.path, "/") {
		if from.path == standardStream {
			return errors.New("standard input has no name: end the path with the name of the file")
		}
		to.path += filepath.Base(from.path)
	}
	if from.path == standardStream {
		open := func() (io.ReadCloser, error) { return io.NopCloser(o.In), nil }
		return o.Output.Upload(ctx, o.file(to), outputclient.Content{Open: open, Size: -1, Once: true}, o.progress.report)
	}
	info, err := os.Stat(from.path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory: to copy it, use -r", from.path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s isn't a regular file: pass it on standard input, with \"-\"", from.path)
	}
	open := func() (io.ReadCloser, error) { return openSized(from.path, info.Size()) }
	return o.Files.Upload(ctx, o.file(to), outputclient.Content{Open: open, Size: info.Size()}, o.progress.report)
}

// openSized opens a file, of which no more than the size is read: what is appended meanwhile isn't part of it.
func openSized(name string, size int64) (io.ReadCloser, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(file, size), file}, nil
}

func (o *copying) download(ctx context.Context, from, to place) error {
	if to.path == standardStream {
		return o.Files.Download(ctx, o.file(from), o.Out, o.progress.report)
	}
	name, err := localTarget(from.path, to.path)
	if err != nil {
		return err
	}
	return cli.WriteWhole(name, false, func(w io.Writer) error {
		return o.Files.Download(ctx, o.file(from), w, o.progress.report)
	})
}

// localTarget is the file that is written: below a directory, it has the name that it has in the session.
func localTarget(from, to string) (string, error) {
	info, err := os.Stat(to)
	isDir := err == nil && info.IsDir()
	switch {
	case isDir || os.IsNotExist(err) && strings.HasSuffix(to, string(filepath.Separator)):
		base := path.Base(from)
		if base == "." || base == ".." || base == "/" || !filepath.IsLocal(base) {
			return "", fmt.Errorf("%s doesn't end in a name: say which name the copy has", from)
		}
		return filepath.Join(to, base), nil
	case err == nil && !info.Mode().IsRegular():
		return "", fmt.Errorf("%s isn't a regular file: use \"-\" for standard output", to)
	case err == nil:
		// What a symbolic link leads to is replaced, not the link.
		return filepath.EvalSymlinks(to)
	case os.IsNotExist(err):
		return to, nil
	default:
		return "", err
	}
}

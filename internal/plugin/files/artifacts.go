package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const artifactsLong = `List the artifacts of a call, or get one: the files that the call's spec.collect keeps. They outlive the call's pod.

With PATH, as the list shows it, the artifact is written into the working directory under the last part of its path, or with
-o under another name; "-" is standard output. It appears whole or not at all, and its SHA-256 is compared with what the call
recorded.

--open shows it with the program that the system has for such files. It is somebody else's data: only images other than SVG, audio,
video, PDF, JSON, CSV and plain text are opened, by the name and by what the content looked like, and never a program or a page.

For programs, the list is in "kubectl toolcall describe NAME -o json", under status.artifacts.

The exit code is 0 also if the call kept no files, and 1 if an artifact can't be got whole.

It needs permission to get toolcalls/log in the group subresources.toolcall.dev, which the ClusterRoles toolcall-viewer and
toolcall-user grant.`

const artifactsExample = `  kubectl toolcall artifacts report
  kubectl toolcall artifacts report plot.png --open
  kubectl toolcall artifacts report result.json -o - | jq .`

// artifactsOptions are the flags of artifacts.
type artifactsOptions struct {
	output string
	open   bool
	quiet  bool
	// view starts the system's viewer.
	view func(file string) error
}

func newArtifacts(c *cli.CLI) *cobra.Command {
	o := &artifactsOptions{view: view}
	command := &cobra.Command{
		Use:               "artifacts NAME [PATH]",
		Short:             "List the files that a call kept, and get one",
		Long:              artifactsLong,
		Example:           artifactsExample,
		Args:              o.validate,
		ValidArgsFunction: completeArtifacts(c),
		RunE:              c.Connected(o.run),
	}
	flags := command.Flags()
	flags.StringVarP(&o.output, "output", "o", "", "write the artifact to this file; - is standard output")
	flags.BoolVar(&o.open, "open", false, "show the artifact with the system's program for it")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print no progress")
	cli.Must(command.RegisterFlagCompletionFunc("output", cli.CompleteFiles))
	return command
}

func (o *artifactsOptions) validate(command *cobra.Command, args []string) error {
	switch {
	case o.output == "" && command.Flags().Changed("output"):
		return errors.New("-o: give a name, or leave the flag out")
	case len(args) == 0 || len(args) > 2 || args[0] == "":
		return errors.New("specify the name of one call, and of one artifact to get it: \"kubectl toolcall get\" lists the calls")
	case len(args) == 1 && (o.output != "" || o.open):
		return errors.New("-o and --open are for one artifact: give its path after the name of the call")
	case o.open && o.output == standardStream:
		return errors.New("--open needs a file: leave out \"-o -\"")
	default:
		return nil
	}
}

func (o *artifactsOptions) run(ctx context.Context, c *cli.Cluster, args []string) error {
	ctx, stop := cli.EndedBySignals(ctx)
	defer stop()
	call, err := c.GetCall(ctx, args[0])
	if err != nil {
		return err
	}
	if len(args) == 1 {
		return list(c, call)
	}
	all := call.Status.Artifacts
	for i := range all {
		if all[i].Path == args[1] {
			return o.get(ctx, c, call, &all[i])
		}
	}
	return fmt.Errorf("call %s has no artifact %q: kubectl toolcall artifacts %s lists those that it has", args[0], args[1], args[0])
}

func list(c *cli.Cluster, call *v1alpha1.ToolCall) error {
	if message := call.Status.ArtifactsMessage; message != "" {
		c.Note(false, "note: %s", terminal.SafeLine(message))
	}
	if len(call.Status.Artifacts) == 0 {
		why := "it kept no files"
		if !call.Status.Phase.Terminal() {
			why = "it hasn't finished, and files are kept at the end"
		}
		fmt.Fprintf(c.ErrOut, "call %s has no artifacts: %s\n", call.Name, why)
		return nil
	}
	w := cli.NewTable(c.Out)
	w.Row("", "PATH", "BYTES", "TYPE", "STATE")
	for _, a := range call.Status.Artifacts {
		w.Row("", a.Path, fmt.Sprint(a.Bytes), a.MediaType, string(a.State))
	}
	return w.Flush()
}

func (o *artifactsOptions) get(ctx context.Context, c *cli.Cluster, call *v1alpha1.ToolCall, a *v1alpha1.Artifact) error {
	if o.open && !canOpen(a, a.Path) {
		return fmt.Errorf("%s is %s, which --open doesn't open, as it could be a program or a page with one: get it with -o, and look at it as you see fit", a.Path, a.MediaType)
	}
	progress := newTransferProgress(c.CLI, o.quiet)
	defer progress.end()
	copyTo := copyArtifact(ctx, c, call, a, progress)
	if o.output == standardStream {
		return copyTo(c.Out)
	}
	name, err := o.target(a)
	switch {
	case err != nil:
		return err
	case o.open && !canOpen(a, name):
		return fmt.Errorf("--open doesn't open %s: by that name, it could be a program or a page with one: choose a name that ends in %s", name, path.Ext(a.Path))
	}
	if err := cli.WriteWhole(name, false, copyTo); err != nil {
		return err
	}
	progress.end()
	fmt.Fprintln(c.Out, terminal.SafeLine(name))
	if !o.open {
		return nil
	}
	if err := o.view(name); err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	return nil
}

// target is the file that is written. Only the last part of a path that a call chose counts. A file that is there already is
// replaced only if the user named it.
func (o *artifactsOptions) target(a *v1alpha1.Artifact) (string, error) {
	info, err := os.Stat(o.output)
	isFolder := o.output == "" || err == nil && info.IsDir() || strings.HasSuffix(o.output, string(filepath.Separator))
	if !isFolder {
		return localTarget(a.Path, o.output)
	}
	base := path.Base(a.Path)
	if base == "." || base == ".." || base == "/" || strings.HasPrefix(base, ".") || strings.ContainsRune(base, '\\') || !filepath.IsLocal(base) {
		return "", fmt.Errorf("%q is no name for a file here: choose one with -o", a.Path)
	}
	name := filepath.Join(o.output, base)
	if _, err := os.Lstat(name); err == nil {
		return "", fmt.Errorf("%s is there already: choose another name with -o, or name it with -o to replace it", name)
	}
	return name, nil
}

// copyArtifact returns what writes an artifact whose content is what the call recorded.
func copyArtifact(ctx context.Context, c *cli.Cluster, call *v1alpha1.ToolCall, a *v1alpha1.Artifact, progress *transferProgress) func(io.Writer) error {
	query := outputclient.Query{
		Namespace: call.Namespace, Name: call.Name, UID: call.UID, Artifact: a.Path, Patience: cli.OutputPatience, SHA256: a.SHA256,
	}
	return func(to io.Writer) error {
		done := int64(0)
		end, err := c.Output.Copy(ctx, query, outputclient.Sink{Write: func(p []byte) error {
			n, err := to.Write(p)
			done += int64(n)
			progress.report(done, a.Bytes)
			return err
		}})
		if err == nil && !end.Verified {
			err = fmt.Errorf("not all of its %d bytes were kept", a.Bytes)
		}
		if err != nil {
			return fmt.Errorf("get artifact %s of call %s: %w", a.Path, call.Name, err)
		}
		return nil
	}
}

// canOpen says whether a viewer shows an artifact under a name and runs nothing of it. The name chooses the viewer, the recorded type is
// what the content looks like: both must be such.
func canOpen(a *v1alpha1.Artifact, name string) bool {
	byName, _, _ := mime.ParseMediaType(mime.TypeByExtension(filepath.Ext(name)))
	recorded, _, _ := mime.ParseMediaType(a.MediaType)
	return isPassive(byName) && isPassive(recorded)
}

func isPassive(mediaType string) bool {
	kind, _, _ := strings.Cut(mediaType, "/")
	switch mediaType {
	case "application/pdf", "text/plain", "text/csv", "application/json":
		return true
	case "image/svg+xml":
		return false
	default:
		return kind == "image" || kind == "audio" || kind == "video"
	}
}

// view starts the system's program for a file, which goes on when this one ends.
func view(file string) error {
	absolute, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	name, args := "xdg-open", []string{absolute}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", absolute}
	}
	command := exec.Command(name, args...) //nolint:noctx // it goes on when this program ends
	if err := command.Start(); err != nil {
		return fmt.Errorf("%w: the file is at %s", err, absolute)
	}
	return command.Process.Release()
}

// completeArtifacts completes a call, and then its artifacts.
func completeArtifacts(c *cli.CLI) cli.Completer {
	return func(command *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return c.CompleteArguments(1, cli.ListCalls)(command, args, prefix)
		}
		return c.Complete(func(ctx context.Context, cluster *cli.Cluster) (names []string, err error) {
			call, err := cluster.GetCall(ctx, args[0])
			if err != nil {
				return nil, err
			}
			for _, a := range call.Status.Artifacts {
				names = append(names, terminal.SafeLine(a.Path))
			}
			return names, nil
		})(command, args, prefix)
	}
}

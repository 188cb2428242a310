// Command images makes the project's image tarballs without a registry and
// without a container engine. Only the path of the made tarball goes to its
// standard output, or the digest of the pushed image.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"toolcall.dev/operator/hack/images/image"
)

const usage = `usage: images COMMAND

  tool                                      the tool image, from Debian packages (needs root)
  binary --tag TAG [--from BASE.tar] [--entrypoint /PATH] --file FILE:/PATH... OUT.tar
                                            an image of executables and folders, or another image with these added
  push --from FROM REGISTRY/NAME:TAG        send the image of a tarball or an OCI image layout to a registry
  registry --listen ADDRESS                 be a registry until interrupted: in memory, for tests
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	commands := map[string]func([]string) error{"tool": tool, "binary": binary, "push": push, "registry": serve}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(os.Stderr, usage)
		return errors.New("no such command")
	}
	return commands[args[0]](args[1:])
}

func tool(args []string) error {
	if len(args) > 0 {
		return errors.New("tool takes no arguments")
	}
	// debootstrap, which gets the signal too, ends; then the unfinished folder is removed.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	path, err := image.Tool(image.ToolOptions{
		Mirror: os.Getenv("TOOLCALL_DEBIAN_MIRROR"), Cache: image.CacheDir(os.Getenv),
		Install: os.Getenv("TOOLCALL_NO_INSTALL") != "1", Progress: os.Stderr,
	})
	if err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}

func binary(args []string) error {
	flags := flag.NewFlagSet("binary", flag.ContinueOnError)
	b := image.Binary{Config: v1.Config{WorkingDir: "/", User: "65532:65532"}}
	flags.StringVar(&b.Tag, "tag", "", "the image's name and tag")
	flags.StringVar(&b.From, "from", "", "the tarball of an image to add to, which is run as before")
	flags.Func("entrypoint", "the program that the image starts", func(program string) error {
		b.Config.Entrypoint = []string{program}
		return nil
	})
	flags.Func("file", "FILE:/PATH, an executable or a folder, and its place in the image; may be repeated", func(text string) error {
		f, err := image.ParseFile(text)
		b.Files = append(b.Files, f)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || len(b.Files) == 0 || b.Tag == "" {
		return errors.New("binary needs --tag, at least one --file, and the tarball to write")
	}
	if err := b.Write(flags.Arg(0)); err != nil {
		return err
	}
	fmt.Println(flags.Arg(0))
	return nil
}

func push(args []string) error {
	flags := flag.NewFlagSet("push", flag.ContinueOnError)
	from := flags.String("from", "", "the tarball, or the folder of the OCI image layout")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *from == "" {
		return errors.New("push needs --from and the REGISTRY/NAME:TAG to push to")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	digest, err := image.Push(ctx, *from, flags.Arg(0))
	if err != nil {
		return err
	}
	fmt.Println(digest)
	return nil
}

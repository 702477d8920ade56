// Command flightline is all of Flightline in one binary: each role is a
// command. It alone reads the environment.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"flightline/services/app"
	"flightline/services/cli"
	"flightline/services/conformance"
	"flightline/shared/process"
)

func main() { os.Exit(run()) }

func run() int {
	process.TuneGC(os.Getenv("GOGC"), os.Getenv("GOMEMLIMIT"))
	ctx, stop := process.Signals(context.Background())
	defer stop()
	env, err := cli.Environment(os.Environ())
	if err != nil {
		fmt.Fprintf(os.Stderr, "flightline: %v\n", err)
		return process.ExitUsage
	}
	return cli.Run(ctx, cli.Config{
		Env: env, In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Version: version(), Program: program(os.Args[0]),
		Variables: app.Variables(), Roles: roles(env),
	}, os.Args[1:])
}

// program is how the user started this one: go run leaves only the path of what it built.
func program(path string) string {
	if strings.Contains(path, "go-build") {
		return "go run ./services/flightline"
	}
	return path
}

// roles are the commands that start something.
func roles(env map[string]string) []*cobra.Command {
	return append([]*cobra.Command{
		app.Command(env, version(), program(os.Args[0])),
		app.ServeCommand(env, version()),
		app.WorkerCommand(env, version()),
		conformance.Command(env),
		app.NATSConfigCommand(env),
		app.ReaperCommand(),
	}, app.AdminCommands(env, version())...)
}

// release is linked in where the sources are built without their history, as in
// an image: -ldflags "-X main.release=v1.2.3".
var release string

// version is what the build knows of itself: a release's version, or the
// commit it was built from.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

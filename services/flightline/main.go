// Command flightline is all of Flightline in one binary: each role is a
// command. It alone knows the environment, signals and exit codes.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"flightline/services/cli"
	"flightline/services/conform"
	"flightline/services/dev"
	"flightline/shared/process"
)

func main() { os.Exit(run()) }

func run() int {
	process.SpareCollector(os.Getenv("GOGC"), os.Getenv("GOMEMLIMIT"))
	ctx, stop := process.Signals(context.Background())
	defer stop()
	env, err := cli.Environment(os.Environ())
	if err != nil {
		fmt.Fprintf(os.Stderr, "flightline: %v\n", err)
		return process.ExitUsage
	}
	return cli.Run(ctx, cli.Config{
		Env: env, In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Version: version(), Roles: roles(env),
	}, os.Args[1:])
}

// roles are the commands that start something.
func roles(env map[string]string) []*cobra.Command {
	return append([]*cobra.Command{
		dev.Command(env, version()),
		dev.ServeCommand(env, version()),
		dev.WorkerCommand(env, version()),
		conform.Command(env),
		dev.NATSConfigCommand(env),
	}, dev.OperateCommands(env, version())...)
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

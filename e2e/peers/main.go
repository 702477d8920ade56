// Command peers measures Flightline as a user starts it beside what a user would
// pick instead: `flightline dev` with all its roles and a worker of its own, BullMQ
// and asynq on Redis, and a bare Fiber echo. Each runs as real processes on loopback.
//
//	go run . [-rounds N] [-only NAME,…] [-beside FILE] [-long 5m] [-deep N] [-endpoints N]
//
// The systems take turns in short rounds, so that the ratios hold on a machine that
// is not quiet. Figures and aims: docs/benchmarks.md. `task bench:peers` installs
// what is needed and runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"flightline/e2e/gauge"
	"flightline/shared/process"
)

// options are the command line's.
type options struct {
	rounds, jobs    int
	only            string
	flightline      string
	beside          string
	dir             string
	long            time.Duration
	deep, endpoints int
}

func main() {
	ctx, stop := process.Signals(context.Background())
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 {
		if serve, ok := roles[args[0]]; ok {
			return serve(ctx, args[1:])
		}
	}
	var o options
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", 3, "rounds, in each of which every system has its turn; 0 for the long cases alone")
	flags.IntVar(&o.jobs, "jobs", 10_000, "jobs of a round that measures whole cycles; a fourth of them where each write is fsynced")
	flags.StringVar(&o.only, "only", "", "measure only these, by `NAME,…`: "+strings.Join(names(), ", "))
	flags.StringVar(&o.flightline, "flightline", "", "the `FILE` of a built flightline; by default it is built")
	flags.StringVar(&o.beside, "beside", "", "the `FILE` of another build of flightline, which takes turns as old-…")
	flags.StringVar(&o.dir, "dir", "", "keep the stores below this `DIR` (default: the system's temporary folder)")
	flags.DurationVar(&o.long, "long", 0, "also take 1000 jobs/s for this long, with a retention of 60 s")
	flags.IntVar(&o.deep, "deep", 0, "also queue this many jobs and work them off")
	flags.IntVar(&o.endpoints, "endpoints", 0, "also make this many endpoints, look at them idle, and stop")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return measure(ctx, o, out)
}

// bench is one run of the program.
type bench struct {
	options
	log     *slog.Logger
	figures figures
}

func measure(ctx context.Context, o options, out io.Writer) error {
	var err error
	if o.dir, err = os.MkdirTemp(o.dir, "flightline-peers-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir) //nolint:errcheck // a temporary folder
	b := &bench{options: o, log: slog.New(slog.NewTextHandler(os.Stderr, nil)), figures: figures{}}
	chosen, err := choose(o.only)
	if err != nil {
		return err
	}
	if err := b.prepare(ctx, chosen); err != nil {
		return err
	}
	began, before := time.Now(), gauge.LoadAverage()
	if err := errors.Join(b.turns(ctx, chosen), b.scale(ctx)); err != nil {
		return err
	}
	b.figures.print(out, fmt.Sprintf("%s; %d rounds; load average before %s, after %s; took %s",
		gauge.Machine(), o.rounds, before, gauge.LoadAverage(), time.Since(began).Round(time.Second)))
	return nil
}

// prepare builds flightline and says what is missing.
func (b *bench) prepare(ctx context.Context, chosen []system) error {
	var missing []error
	need := func(program, how string) {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, fmt.Errorf("%s is not there: %s, or leave its systems out with -only", program, how))
		}
	}
	if slices.ContainsFunc(chosen, func(s system) bool { return s.redis != "" }) {
		need("redis-server", "apt-get install redis-server")
	}
	if slices.ContainsFunc(chosen, func(s system) bool { return strings.HasPrefix(s.name, "bullmq") }) {
		need("node", "apt-get install nodejs npm")
		if _, err := os.Stat(filepath.Join(bullmqFolder, "node_modules", "bullmq")); err != nil {
			missing = append(missing, fmt.Errorf("BullMQ is not installed: (cd e2e/peers/%s && npm ci)", bullmqFolder))
		}
	}
	if len(missing) > 0 {
		return errors.Join(missing...)
	}
	if b.flightline != "" {
		return nil
	}
	b.flightline = filepath.Join(b.dir, "flightline")
	build := exec.CommandContext(ctx, "go", "build", "-o", b.flightline, "./services/flightline") //nolint:gosec // our own
	build.Dir, build.Stdout, build.Stderr = filepath.Join("..", ".."), os.Stderr, os.Stderr
	return build.Run()
}

// entry is a system in the order of a round, with the build of flightline that it runs.
type entry struct {
	system
	build string
}

// turns gives each system its turn in each round; every other round begins at the end.
func (b *bench) turns(ctx context.Context, chosen []system) error {
	var order []entry
	for _, s := range chosen {
		if s.sync == "" {
			order = append(order, entry{s, ""})
			continue
		}
		order = append(order, entry{s, b.flightline})
		if b.beside != "" {
			s.name = "old-" + s.name
			order = append(order, entry{s, b.beside})
		}
	}
	for round := range b.rounds {
		for _, e := range order {
			b.log.InfoContext(ctx, "measure", "system", e.name, "round", round+1, "load_average", gauge.LoadAverage())
			if err := b.turn(ctx, e); err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
		}
		slices.Reverse(order)
	}
	return nil
}

// turn starts a system, measures it and stops it.
func (b *bench) turn(ctx context.Context, e entry) error {
	t := &target{bench: b, name: e.name, build: e.build, dir: filepath.Join(b.dir, e.name)}
	defer t.stop()
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return err
	}
	if err := e.start(ctx, t, e.system); err != nil {
		return err
	}
	n := b.jobs
	if e.slow {
		n /= 4
	}
	return t.measure(ctx, n)
}

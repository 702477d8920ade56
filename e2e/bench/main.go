// Command bench measures Flightline as real processes on loopback: a message
// server, an API instance, a worker with 64 slots, and this process, which
// drives the load over HTTP.
//
//	go run ./e2e/bench [-short] [-json FILE] [-only name,…] [-cpuprofile DIR]
//
// Beside each figure stands the bare pipeline's, measured in the same run: the
// same streams, durability, number of processes and of connections, one
// publish, two compare-and-set record writes with ttl and schedule, one fetch
// and one ack, and nothing else. Both are measured in short rounds that take
// turns, so that the ratios hold on a machine that is not quiet.
//
// Figures and what limits them: docs/benchmarks.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// options are the command line's.
type options struct {
	short  bool
	json   string
	only   string
	rounds int
	queued int
	dir    string
	// profiles is a folder that each process leaves its CPU profile in.
	profiles string
	// role is what a process that the bench started itself is.
	role string
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&o.short, "short", false, "a minute's worth: few jobs, few rounds, small queues")
	flags.StringVar(&o.json, "json", "", "write the figures to `FILE` too")
	flags.StringVar(&o.only, "only", "", "measure only these, by `NAME,…`: "+strings.Join(names(), ", ")+"; or a setup: "+strings.Join(setupNames(), ", "))
	flags.IntVar(&o.rounds, "rounds", 0, "rounds of each measurement (default 5, with -short 3)")
	flags.IntVar(&o.queued, "queued", 0, "jobs of the deep queues (default 1000000, with -short 5000)")
	flags.StringVar(&o.dir, "dir", "", "keep the servers' stores below this `DIR` (default: the system's temporary folder)")
	flags.StringVar(&o.profiles, "cpuprofile", "", "each process writes a CPU profile into `DIR`")
	flags.StringVar(&o.role, "role", "", "for the processes that bench starts itself")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.role != "" {
		return serveRole(o.role)
	}
	return measure(o, out)
}

// wholeRun bounds everything; the steps have bounds of their own.
const wholeRun = 40 * time.Minute

// benchCase is one part of the run.
type benchCase struct {
	name string
	do   func(context.Context) ([]row, error)
}

// cases are those that the options ask for. The console and the fleet are measured only
// if they are named.
func (b *bench) cases() []benchCase {
	var all []benchCase
	for _, s := range setups() {
		if s.short || !b.opts.short {
			all = append(all, benchCase{s.name, func(ctx context.Context) ([]row, error) { return b.setup(ctx, s) }})
		}
	}
	all = append(all, benchCase{scaleCase, b.scale})
	if b.opts.only != "" {
		all = append(all, benchCase{consoleCase, b.console}, benchCase{fleetCase, b.fleet})
	}
	return slices.DeleteFunc(all, func(c benchCase) bool { return !b.opts.wants(c.name) })
}

func measure(o options, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), wholeRun)
	defer cancel()
	dir, err := os.MkdirTemp(o.dir, "flightline-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	b := &bench{opts: o, sizes: sizesOf(o), dir: dir, progress: os.Stderr}
	if o.profiles != "" {
		if err := os.MkdirAll(o.profiles, 0o755); err != nil { //nolint:gosec // profiles are no secret
			return err
		}
	}
	return b.all(ctx, b.cases(), newReport(o, dir), out)
}

// all measures the cases and reports them. After a case that fails it measures no other,
// and reports those before it.
func (b *bench) all(ctx context.Context, cases []benchCase, r *report, out io.Writer) error {
	var failed error
	for _, c := range cases {
		rows, err := c.do(ctx)
		if err != nil {
			failed = fmt.Errorf("%s: %w", c.name, err)
			break
		}
		r.Rows = append(r.Rows, rows...)
	}
	r.finish()
	r.print(out)
	if b.opts.json != "" {
		failed = errors.Join(failed, r.write(b.opts.json))
	}
	return failed
}

// wants reports whether -only lets a measurement or a setup pass.
func (o options) wants(name string) bool {
	if o.only == "" {
		return true
	}
	list := strings.Split(o.only, ",")
	named := func(all []string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return slices.Contains(all, s) })
	}
	if slices.Contains(setupNames(), name) && !named(setupNames()) {
		return named(caseNames()) // of every setup
	}
	if slices.Contains(caseNames(), name) && !named(caseNames()) {
		return named(setupNames()) // every case
	}
	return slices.Contains(list, name)
}

func names() []string { return append(caseNames(), scaleCase, consoleCase, fleetCase) }

// sizes bound the loads.
type sizes struct {
	rounds int
	// load and loadAlways are the jobs of a throughput round, without and with
	// an fsync before each answer.
	load, loadAlways int
	// trips are the operations of a latency round, one after the other.
	trips int
	// endpoints, queued and endpointsFew, queuedFew are the two ends of scale.
	endpoints, queued       int
	endpointsFew, queuedFew int
	scaleTrips              int
	// pageTrips is how often each page is fetched, watched how long it is open.
	pageTrips int
	watched   time.Duration
}

func sizesOf(o options) sizes {
	s := sizes{
		rounds: 5, load: 10_000, loadAlways: 4000, trips: 500,
		endpoints: 1000, queued: 1_000_000, endpointsFew: 1, queuedFew: 1000, scaleTrips: 300,
		pageTrips: 60, watched: 5 * time.Second,
	}
	if o.short {
		s = sizes{
			rounds: 3, load: 1200, loadAlways: 500, trips: 60,
			endpoints: 30, queued: 5000, endpointsFew: 1, queuedFew: 1000, scaleTrips: 40,
			pageTrips: 10, watched: 2 * time.Second,
		}
	}
	if o.rounds > 0 {
		s.rounds = o.rounds
	}
	if o.queued > 0 {
		s.queued = o.queued
	}
	return s
}

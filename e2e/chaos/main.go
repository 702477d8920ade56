package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/e2e/chaos/system"
	"flightline/shared/endpoint"
	"flightline/shared/process"
)

// options are what the command line says.
type options struct {
	short, plants     bool
	timed             bool // -for was given
	nodes, jobs       int
	rate              int
	last              time.Duration
	seed              uint64
	role, config, act string
	ofSystem
}

func main() {
	var o options
	flag.BoolVar(&o.short, "short", false, "fewer jobs and fewer kills, as CI does")
	flag.BoolVar(&o.plants, "plants", false, "only the planted bugs")
	flag.IntVar(&o.nodes, "nodes", 0, "1 or 3 NATS nodes only; 0 means the planted bugs, 1 and 3")
	flag.IntVar(&o.jobs, "jobs", 0, "how many jobs; 0 means as many as the form has, or -rate says")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of what is left to chance")
	flag.StringVar(&o.role, "role", "", "used by the program itself")
	flag.StringVar(&o.config, "config", "", "used by the program itself")
	flag.IntVar(&o.rate, "rate", 200, "jobs a second, with -scenario cluster or soak")
	flag.DurationVar(&o.last, "for", 5*time.Minute, "how long, with -scenario cluster, soak or gpus (gpus: 1 min unless given)")
	flag.StringVar(&o.act, "scenario", "", "play these scenarios, with commas between them, and print what they violate; system: all of the built binary; soak: a long load on one node, or -nodes 3, with all faults in turn; cluster: three nodes killed and cut off under load")
	flag.StringVar(&o.binary, "binary", "", "path of the flightline that the scenarios of the built binary test; built from this folder if empty")
	flag.StringVar(&o.other, "other", "", "path of another version of it, for the scenario versions")
	flag.StringVar(&o.report, "report", "", "file to write the table of the scenarios to, as markdown")
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { o.timed = o.timed || f.Name == "for" })
	good, err := o.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	if err != nil || !good {
		os.Exit(process.ExitFailure)
	}
}

func (o options) run() (good bool, err error) {
	ctx, stop := process.Signals(context.Background())
	defer stop()
	switch {
	case o.role != "":
		return true, runRole(ctx, o.role, o.config)
	case o.act == clusterEndpoint:
		return o.cluster(ctx)
	case o.act == "system":
		return o.system(ctx)
	case o.act == "soak":
		return o.soak(ctx)
	case o.act != "" && system.Has(strings.Split(o.act, ",")...):
		return o.system(ctx, strings.Split(o.act, ",")...)
	case o.act != "":
		return playOne(ctx, o.act)
	}
	if o.plants {
		good, err = findMutations(ctx, os.Stdout)
		if err != nil || !good {
			return good, err
		}
		return o.systemMutations(ctx)
	}
	good = true
	if o.nodes == 0 {
		if good, err = o.beforeExperiments(ctx); err != nil {
			return false, err
		}
	}
	fmt.Printf("\nseed %d\n", o.seed)
	for _, x := range o.experiments() {
		r, err := x.run(ctx)
		if err != nil {
			return false, err
		}
		r.print(os.Stdout)
		good = good && r.good()
	}
	return good, nil
}

// beforeExperiments looks for the planted bugs and plays the scenarios of the
// built binary, at the same time: most of both is waiting.
func (o options) beforeExperiments(ctx context.Context) (good bool, err error) {
	var kept bool
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		good, err = findMutations(ctx, os.Stdout)
		return err
	})
	g.Go(func() (err error) {
		kept, err = o.system(ctx)
		return err
	})
	err = g.Wait()
	return good && kept, err
}

// cluster reports whether three nodes under load kept all promises.
func (o options) cluster(ctx context.Context) (good bool, err error) {
	r, err := cluster{rate: o.rate, last: o.last, seed: o.seed}.run(ctx)
	if err != nil {
		return false, err
	}
	r.print(os.Stdout)
	return r.good(), nil
}

// experiments are those of the form that was asked for.
func (o options) experiments() []experiment {
	one := experiment{nodes: 1, jobs: 2000, lease: shortLease, least: 20, seed: o.seed, limit: 15 * time.Minute}
	three := experiment{nodes: 3, jobs: 1000, lease: endpoint.MinLease, least: 20, seed: o.seed, limit: 15 * time.Minute}
	if o.short {
		one.jobs, one.least, one.limit = 600, 5, 100*time.Second
		three.jobs, three.least, three.limit = 300, 5, 100*time.Second
	}
	var chosen []experiment
	for _, x := range []experiment{one, three} {
		if o.nodes != 0 && o.nodes != x.nodes {
			continue
		}
		if o.jobs > 0 {
			x.jobs = o.jobs
		}
		chosen = append(chosen, x)
	}
	return chosen
}

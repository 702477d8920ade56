package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"flightline/e2e/gauge"
	"flightline/services/cli"
	"flightline/shared/client"
	"flightline/shared/job"
)

const (
	consoleCase = "console"
	// openConsoles is how many pages are open while jobs are timed.
	openConsoles = 50
	// beginningOfID is how much of an id is looked for.
	beginningOfID = 18
)

// pages measures the console of a `flightline dev` that has many endpoints and a deep queue.
type pages struct {
	*bench
	pid    int
	url    string
	http   *http.Client
	client *client.Client
	caller *caller
	queued job.ID // a job of the deep queue
}

// console measures how long each page takes, what an open one costs, and what 50 open ones cost
// a job. It runs only if it is asked for by name.
func (b *bench) console(ctx context.Context) ([]row, error) {
	p := &pages{bench: b}
	stop, err := p.start(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	rows, err := p.times(ctx)
	if err != nil {
		return nil, err
	}
	costs, err := p.costs(ctx)
	if err != nil {
		return nil, err
	}
	jobs, err := p.beside(ctx)
	return slices.Concat(rows, costs, jobs), err
}

// start builds and starts a dev, its worker, and fills it.
func (p *pages) start(ctx context.Context) (stop func(), err error) {
	dev, err := p.startDev(ctx, "dev", "--sync", "interval", "--metrics-listen", anyPort)
	if err != nil {
		return nil, err
	}
	p.pid = dev.cmd.Process.Pid
	var worker *child
	end := func() {
		if worker != nil {
			worker.stop()
		}
		dev.stop()
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	at := dev.at
	p.url = at.URL
	p.caller = newCaller(at.URL[len("http://"):], devKey)
	if p.client, err = client.New(at.URL, devKey, client.WithPatience(devReadyTimeout)); err != nil {
		return nil, err
	}
	if err := p.fill(ctx, at); err != nil {
		return nil, err
	}
	worker, _, err = start(ctx, roleWorker, config{NATS: at.NATSURL, User: at.NATSUser, Password: at.NATSPassword, Endpoint: busyEndpoint, Slots: scaleSlots})
	if err != nil {
		return nil, err
	}
	if err := p.caller.runSync(); err != nil {
		return nil, err
	}
	return end, p.signIn(ctx)
}

// fill makes the endpoints and queues the jobs where nobody works.
func (p *pages) fill(ctx context.Context, at cli.Running) error {
	ids := []string{busyEndpoint, quietEndpoint}
	for i := range p.sizes.endpoints {
		ids = append(ids, crowdEndpoint(i))
	}
	_, _ = fmt.Fprintf(p.progress, "console: make %d endpoints\n", len(ids))
	const atOnce = 8
	if _, err := load(ctx, len(ids), atOnce, func(ctx context.Context, i int) error {
		_, err := p.client.Endpoints().Create(ctx, client.EndpointSpec{ID: ids[i], WorkersMax: new(0), MaxQueueJobs: 10_000_000, MaxQueueBytes: 10 << 30})
		return err
	}); err != nil {
		return err
	}
	s := &env{}
	defer s.close()
	if err := s.connect(ctx, config{NATS: at.NATSURL, User: at.NATSUser, Password: at.NATSPassword}); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(p.progress, "console: queue %d jobs\n", p.sizes.queued)
	began := time.Now()
	if err := s.fill(ctx, p.sizes.queued); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(p.progress, "console: queued within %v\n", time.Since(began).Round(time.Second))
	var err error
	p.queued, err = p.caller.run(quietEndpoint)
	return err
}

func (p *pages) signIn(ctx context.Context) error {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	p.http = &http.Client{Jar: jar, Transport: &http.Transport{MaxIdleConnsPerHost: openConsoles}}
	res, err := p.http.PostForm(p.url+"/ui/sign-in", url.Values{"key": {devKey}}) //nolint:noctx // as above
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("sign in: %d, %w", res.StatusCode, err)
	}
	return p.get(ctx, "/ui/")
}

// get fetches a page.
func (p *pages) get(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, http.NoBody)
	if err != nil {
		return err
	}
	res, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d: %.500s", path, res.StatusCode, text)
	}
	return err
}

// paths are the pages that are measured.
func (p *pages) paths() []string {
	of := "/ui/e/" + quietEndpoint
	id := string(p.queued)
	return []string{
		"/ui/", "/ui/e/" + busyEndpoint, of, of + "/jobs", of + "/jobs?status=FAILED", of + "/jobs?status=IN_PROGRESS", of + "/jobs?q=" + id[:beginningOfID], of + "/jobs/" + id, of + "/jobs/" + id + "/log",
		of + "/try", of + "/scaling", of + "/webhooks", "/ui/failures", "/ui/workers", "/ui/machines", "/ui/events", "/ui/system",
	}
}

// times fetches each page again and again.
func (p *pages) times(ctx context.Context) ([]row, error) {
	var rows []row
	for _, path := range p.paths() {
		took := make([]time.Duration, 0, p.sizes.pageTrips)
		for range p.sizes.pageTrips {
			began := time.Now()
			if err := p.get(ctx, path); err != nil {
				return nil, err
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		ms := func(q float64) float64 { return float64(quantile(took, q).Microseconds()) / 1000 }
		of := row{Setup: consoleCase, Case: p.named(path), Unit: milliseconds, Rounds: len(took)}
		of.Metric, of.Ours = "p50", ms(0.5)
		rows = append(rows, of)
		of.Metric, of.Ours = "p95", ms(0.95)
		rows = append(rows, of)
	}
	return rows, nil
}

// named is a path without the id of the job.
func (p *pages) named(path string) string {
	id := string(p.queued)
	return strings.NewReplacer(id, "ID", id[:beginningOfID], "ID").Replace(path)
}

// watch keeps n pages open, the given ones in turn, until stop is called. It returns once each
// has shown something.
func (p *pages) watch(ctx context.Context, n int, paths ...string) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var open sync.WaitGroup
	stop = func() { cancel(); open.Wait() }
	shown := make(chan error, n)
	for i := range n {
		path := "/ui/live?" + url.Values{"topics": {paths[i%len(paths)]}}.Encode()
		open.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, http.NoBody)
			if err != nil {
				shown <- err
				return
			}
			res, err := p.http.Do(req)
			if err != nil {
				shown <- err
				return
			}
			defer res.Body.Close()
			_, err = res.Body.Read(make([]byte, 1))
			shown <- err
			_, _ = io.Copy(io.Discard, res.Body)
		})
	}
	for range n {
		if err := <-shown; err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

// share is which share of a core dev used meanwhile, in percent.
func (p *pages) share(ctx context.Context) float64 {
	before, began := gauge.CPUTime(p.pid), time.Now()
	timer := time.NewTimer(p.sizes.watched)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return 100 * float64(gauge.CPUTime(p.pid)-before) / float64(time.Since(began))
}

// costs is what an open page costs dev, beside none, in turns: what dev does now and then for
// its many endpoints falls on either.
func (p *pages) costs(ctx context.Context) ([]row, error) {
	of := "/ui/e/" + quietEndpoint
	var rows []row
	for _, path := range []string{"/ui/", of, of + "/jobs", of + "/jobs/" + string(p.queued), "/ui/workers", "/ui/events", "/ui/system"} {
		_, _ = fmt.Fprintf(p.progress, "console: %s is open\n", p.named(path))
		var pairs []pair
		for range p.sizes.rounds {
			none := p.share(ctx)
			stop, err := p.watch(ctx, 1, path)
			if err != nil {
				return nil, err
			}
			open := p.share(ctx)
			stop()
			pairs = append(pairs, pair{bare: cost(none), ours: cost(open)})
		}
		rows = append(rows, rowsOf(consoleCase, p.named(path)+" open", pairs)...)
	}
	return rows, ctx.Err()
}

// cost is a share of a core as a reading.
func cost(share float64) reading { return reading{{"cpu", "% of a core", share}} }

// beside times jobs while 50 pages are open, and while none is.
func (p *pages) beside(ctx context.Context) ([]row, error) {
	var pairs []pair
	trip := func() (reading, error) {
		s, err := load(ctx, p.sizes.trips, 1, func(context.Context, int) error { return p.caller.runSync() })
		return latency(s), err
	}
	for round := range p.sizes.rounds {
		_, _ = fmt.Fprintf(p.progress, "console: jobs beside %d open pages, round %d\n", openConsoles, round)
		var one pair
		var err error
		if one.bare, err = trip(); err != nil {
			return nil, err
		}
		stop, err := p.watch(ctx, openConsoles, "/ui/", "/ui/e/"+busyEndpoint, "/ui/e/"+busyEndpoint+"/jobs", "/ui/e/"+quietEndpoint+"/jobs", "/ui/workers", "/ui/events", "/ui/failures", "/ui/system", "/ui/machines", "/ui/e/"+quietEndpoint)
		if err != nil {
			return nil, err
		}
		one.ours, err = trip()
		stop()
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, one)
	}
	return rowsOf(consoleCase, fmt.Sprintf("runsync, %d open", openConsoles), pairs), nil
}

// consoleRow judges a figure of the console.
func (r *report) consoleRow(x row) {
	switch x.Metric {
	case "p95":
		r.aim(x.Ours <= 100, 100, x.Ours, "%s: ms to answer, p95, at most", x.Case)
	case "cpu":
		r.aim(x.Ours-x.Bare <= 2, 2, x.Ours-x.Bare, "%s: %% of a core, beyond what dev uses without it, at most", x.Case)
	case "p50":
		if x.Bare > 0 {
			r.aim(x.Ours-x.Bare < 1, 1, x.Ours-x.Bare, "%s: ms that a job takes longer, p50, less than", x.Case)
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/queue"
)

// play is a scenario on its stage: a site with one NATS node and one api
// instance.
type play struct {
	site   *site
	client *client
	jobs   []string
}

// perform plays the scenario and returns what the audit finds.
func (sc scenario) perform(ctx context.Context) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	e := newEndpoint("stage", shortLease)
	e.ExecutionTimeout = time.Hour // no scenario is about deadlines
	if sc.shape != nil {
		sc.shape(&e)
	}
	s, err := newSite(ctx, 1, e)
	if err != nil {
		return nil, err
	}
	p := &play{site: s, client: newClient(s.apis[:1], s.ledger, s.fault)}
	if _, err := s.start("api", roleConfig{Name: "api", Listen: s.apis[0]}); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := sc.act(ctx, p); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", sc.plant, err), s.close())
	}
	// What a bug leaves behind never comes to rest; half a minute would be
	// spent on it for nothing.
	stuck := s.quiet(ctx, 5*e.Lease)
	for _, id := range p.jobs {
		p.client.status(ctx, 0, e.ID, id)
	}
	r, err := s.audit(ctx, p.client, stuck)
	return r, errors.Join(err, s.close())
}

// playOne plays the scenario of a planted bug, as this program is built, and
// reports whether nothing was violated.
func playOne(ctx context.Context, plant string) (bool, error) {
	for _, sc := range scenarios() {
		if sc.plant != plant {
			continue
		}
		r, err := sc.perform(ctx)
		if err != nil {
			return false, err
		}
		r.print(os.Stdout)
		return len(r.violations) == 0, nil
	}
	return false, fmt.Errorf("no scenario %q", plant)
}

func (p *play) endpoint() endpoint.Endpoint { return p.site.endpoints[0] }

func (p *play) submit(ctx context.Context, in input) error {
	in.Tag = len(p.jobs) + 1
	told := p.client.submit(ctx, 0, p.endpoint().ID, in, policy{})
	if told.Answer != yes {
		return fmt.Errorf("a job is not accepted: %s", told.Answer)
	}
	p.jobs = append(p.jobs, told.Job)
	return nil
}

func (p *play) worker(name string, slots int, dieAt queue.Point) (*child, error) {
	return p.site.start("worker", roleConfig{
		Name: name, Endpoints: p.site.endpoints, Slots: []int{slots}, DieAt: dieAt, DieAfter: 1,
	})
}

// serves waits until a job is accepted and has run.
func (p *play) serves(ctx context.Context) error {
	for p.submit(ctx, input{Plan: quick}) != nil {
		if !wait(ctx, again) {
			return errors.New("never happened: a job is accepted")
		}
	}
	return p.eventuallyOf(ctx, "a job is served", p.jobs[len(p.jobs)-1:], over)
}

// eventually waits until all jobs hold what is asked.
func (p *play) eventually(ctx context.Context, what string, holds func(write) bool) error {
	return p.eventuallyOf(ctx, what, p.jobs, holds)
}

func (p *play) eventuallyOf(ctx context.Context, what string, jobs []string, holds func(write) bool) error {
	for !p.all(jobs, holds) {
		if !wait(ctx, again) {
			return fmt.Errorf("never happened: %s", what)
		}
	}
	return nil
}

func (p *play) all(jobs []string, holds func(write) bool) bool {
	o := p.site.observer
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range jobs {
		if !holds(o.heads[id]) {
			return false
		}
	}
	return true
}

// cue is the file that the runs of a scenario wait for.
func (p *play) cue() string { return filepath.Join(p.site.dir, "cue") }

// giveCue lets them deliver their outcomes at that instant.
func (p *play) giveCue(at time.Time) error {
	draft := p.cue() + ".draft"
	if err := os.WriteFile(draft, nil, 0o600); err != nil {
		return fmt.Errorf("write cue: %w", err)
	}
	if err := os.Chtimes(draft, at, at); err != nil {
		return fmt.Errorf("write cue: %w", err)
	}
	if err := os.Rename(draft, p.cue()); err != nil {
		return fmt.Errorf("give cue: %w", err)
	}
	return nil
}

// delivered waits until the first run of each job has delivered its outcome,
// with success or not.
func (p *play) delivered(ctx context.Context) error {
	for {
		all, err := readLedgers(p.site.dir)
		if err != nil {
			return err
		}
		jobs := map[string]bool{}
		for _, e := range all {
			if e.Run == 1 && (e.Kind == ended || e.Kind == refused) {
				jobs[e.Job] = true
			}
		}
		if len(jobs) == len(p.jobs) {
			return nil
		}
		if !wait(ctx, again) {
			return errors.New("never happened: the first runs deliver their outcomes")
		}
	}
}

func running(w write) bool { return w.Status == inProgress }

func over(w write) bool { return terminal(w.Status) }

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
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
		return nil, errors.Join(fmt.Errorf("%s: %w", sc.tag, err), s.close())
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

// playOne plays the scenario of that tag, as this program is built, and
// reports whether nothing was violated.
func playOne(ctx context.Context, tag string) (bool, error) {
	for _, sc := range scenarios() {
		if sc.tag != tag {
			continue
		}
		r, err := sc.perform(ctx)
		if err != nil {
			return false, err
		}
		r.print(os.Stdout)
		return len(r.violations) == 0, nil
	}
	return false, fmt.Errorf("no scenario %q", tag)
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

// eventually waits until all jobs hold what is asked.
func (p *play) eventually(ctx context.Context, what string, holds func(write) bool) error {
	for !p.all(holds) {
		if !wait(ctx, again) {
			return fmt.Errorf("never happened: %s", what)
		}
	}
	return nil
}

func (p *play) all(holds func(write) bool) bool {
	o := p.site.observer
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range p.jobs {
		if !holds(o.heads[id]) {
			return false
		}
	}
	return true
}

// later is an instant for a plan.
func later(d time.Duration) int64 { return time.Now().Add(d).UnixMilli() }

func running(w write) bool { return w.Status == inProgress }

func over(w write) bool { return terminal(w.Status) }

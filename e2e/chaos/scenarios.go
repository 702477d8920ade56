package main

import (
	"context"
	"sync"
	"time"

	"flightline/e2e/chaos/network"
	"flightline/shared/endpoint"
	"flightline/shared/queue"
)

// scenario leads straight to one planted bug, and finds nothing without it.
type scenario struct {
	plant string
	does  string
	shape func(e *endpoint.Endpoint)
	act   func(ctx context.Context, p *play) error
}

func scenarios() []scenario {
	return []scenario{
		{
			plant: "plant_cas", does: "a job is cancelled while its worker receives nothing and completes it",
			act: cancelWhileDeaf,
		},
		{
			plant: "plant_delete", does: "a worker dies between deleting the queue message and writing the record",
			act: dieBeforeTheRecord,
		},
		{
			plant: "plant_ttl", does: "killed between outcome and delete, then past retention without a worker, then a worker starts",
			shape: func(e *endpoint.Endpoint) { e.Retention = time.Second },
			act:   outliveTheRetention,
		},
		{
			plant: "plant_guard", does: "NATS is away for two leases while jobs run and another worker waits",
			// A busy machine must find a bug within a quarter of the lease, and
			// a heartbeat that is late by a quarter counts as a cause.
			shape: func(e *endpoint.Endpoint) { e.Lease = 6 * shortLease },
			act:   outageWhileRunning,
		},
		{
			plant: "plant_fence", does: "a job is taken over, and both its runs deliver 8 MB at the same time, or the first one later",
			act: twoLargeOutputs,
		},
	}
}

func cancelWhileDeaf(ctx context.Context, p *play) error {
	for range 4 {
		if err := p.submit(ctx, input{Plan: deafOnce, Cue: p.cue()}); err != nil {
			return err
		}
	}
	if _, err := p.worker("deaf", 4, ""); err != nil {
		return err
	}
	if err := p.eventually(ctx, "the jobs run", running); err != nil {
		return err
	}
	var both sync.WaitGroup
	for _, id := range p.jobs {
		for range 2 {
			both.Go(func() { p.client.cancel(ctx, 0, p.endpoint().ID, id) })
		}
	}
	both.Wait()
	if err := p.giveCue(time.Now()); err != nil {
		return err
	}
	return p.delivered(ctx)
}

func dieBeforeTheRecord(ctx context.Context, p *play) error {
	if err := p.dies(ctx, input{Plan: quick, Size: megabyte}, queue.AfterPayload); err != nil {
		return err
	}
	_, err := p.worker("lives", 1, "")
	wait(ctx, 2*time.Second) // from here, quiet waits for the takeover
	return err
}

// dies submits a job, and has the worker that gets it die at a point.
func (p *play) dies(ctx context.Context, in input, at queue.Point) error {
	if err := p.submit(ctx, in); err != nil {
		return err
	}
	dies, err := p.worker("dies", 1, at)
	if err != nil {
		return err
	}
	select {
	case <-dies.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func outliveTheRetention(ctx context.Context, p *play) error {
	if err := p.dies(ctx, input{Plan: quick}, queue.AfterTerminalWrite); err != nil {
		return err
	}
	wait(ctx, p.endpoint().Retention+2*time.Second) // the server removes it a little later
	_, err := p.worker("lives", 1, "")
	return err
}

// outageWhileRunning: the holder of the jobs comes back from the outage a little
// later than the worker that waits. Nobody had service for a whole lease by then.
func outageWhileRunning(ctx context.Context, p *play) error {
	const jobs = 20
	lease := p.endpoint().Lease
	wire, err := network.NewRelay("127.0.0.1:0", p.site.nodes[0].cfg.Listen) //nolint:contextcheck // it lives until Close
	if err != nil {
		return err
	}
	defer wire.Close()
	if err := p.holdJobs(ctx, jobs, "nats://"+wire.Address); err != nil {
		return err
	}
	if _, err := p.worker("waits", 2*jobs, ""); err != nil { // with room for what it should not take over
		return err
	}
	if err := p.serves(ctx); err != nil { // by "waits": the other one is full
		return err
	}
	p.site.nodes[0].child.kill()
	wire.Cut()
	wait(ctx, lease+lease/4) // their leases are over
	if err := p.site.startNode(0); err != nil {
		return err
	}
	if err := p.serves(ctx); err != nil {
		return err
	}
	wait(ctx, lease/4) // "waits" has the time to take over what it should not
	wire.Mend()
	wait(ctx, lease/4)
	if err := p.giveCue(time.Now()); err != nil {
		return err
	}
	return p.eventually(ctx, "the jobs end", over)
}

// holdJobs starts a worker, which reaches the bus at url, and jobs that fill it.
func (p *play) holdJobs(ctx context.Context, jobs int, url string) error {
	_, err := p.site.start("worker", roleConfig{
		Name: "holds", Endpoints: p.site.endpoints, Slots: []int{jobs}, Bus: url,
	})
	if err != nil {
		return err
	}
	for range jobs {
		if err := p.submit(ctx, input{Plan: steady, Cue: p.cue()}); err != nil {
			return err
		}
	}
	return p.eventually(ctx, "the jobs run", running)
}

// twoLargeOutputs: how much later the first run has to be for both to write at once
// depends on how busy the machine is.
func twoLargeOutputs(ctx context.Context, p *play) error {
	const jobs = 8
	for range jobs {
		if err := p.submit(ctx, input{Plan: deafOnce, Cue: p.cue(), Size: 8 * megabyte}); err != nil {
			return err
		}
	}
	if _, err := p.worker("deaf", jobs, ""); err != nil {
		return err
	}
	if err := p.eventually(ctx, "the jobs run", running); err != nil {
		return err
	}
	if _, err := p.worker("takes over", jobs, ""); err != nil {
		return err
	}
	second := func(w write) bool { return w.Run == 2 }
	if err := p.eventually(ctx, "the jobs are taken over", second); err != nil {
		return err
	}
	if err := p.giveCue(time.Now().Add(time.Second)); err != nil { // both runs have seen it by then
		return err
	}
	return p.eventually(ctx, "the jobs end", over)
}

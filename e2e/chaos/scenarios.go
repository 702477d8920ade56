package main

import (
	"context"
	"sync"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/queue"
)

// scenario leads straight to one planted bug, and finds nothing without it.
type scenario struct {
	tag   string
	story string
	shape func(e *endpoint.Endpoint)
	act   func(ctx context.Context, p *play) error
}

func scenarios() []scenario {
	return []scenario{
		{
			tag: "plant_cas", story: "a job is cancelled while its worker hears nothing and completes it",
			act: cancelWhileDeaf,
		},
		{
			tag: "plant_delete", story: "a worker dies between deleting the queue message and writing the record",
			act: dieBeforeTheRecord,
		},
		{
			tag: "plant_ttl", story: "killed between outcome and delete, then past retention without a worker, then a worker starts",
			shape: func(e *endpoint.Endpoint) { e.Retention = time.Second },
			act:   outliveTheRetention,
		},
		{
			tag: "plant_guard", story: "NATS is away for two leases while jobs run and another worker waits",
			act: outageWhileRunning,
		},
		{
			tag: "plant_fence", story: "a job is taken over, and both its runs deliver 8 MB at the same time",
			act: twoLargeOutputs,
		},
	}
}

func cancelWhileDeaf(ctx context.Context, p *play) error {
	at := later(3 * time.Second)
	for range 4 {
		if err := p.submit(ctx, input{Plan: deafOnce, At: at}); err != nil {
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
	wait(ctx, time.Until(time.UnixMilli(at).Add(500*time.Millisecond)))
	return nil
}

func dieBeforeTheRecord(ctx context.Context, p *play) error {
	if err := p.submit(ctx, input{Plan: quick, Size: megabyte}); err != nil {
		return err
	}
	dies, err := p.worker("dies", 1, queue.AfterPayload)
	if err != nil {
		return err
	}
	select {
	case <-dies.gone:
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err = p.worker("lives", 1, "")
	wait(ctx, 2*time.Second) // from here, quiet waits for the takeover
	return err
}

func outliveTheRetention(ctx context.Context, p *play) error {
	if err := p.submit(ctx, input{Plan: quick}); err != nil {
		return err
	}
	dies, err := p.worker("dies", 1, queue.AfterTerminalWrite)
	if err != nil {
		return err
	}
	select {
	case <-dies.gone:
	case <-ctx.Done():
		return ctx.Err()
	}
	wait(ctx, p.endpoint().Retention+2*time.Second) // the server removes it a little later
	_, err = p.worker("lives", 1, "")
	return err
}

func outageWhileRunning(ctx context.Context, p *play) error {
	const jobs = 20
	lease := p.endpoint().Lease
	if _, err := p.worker("holds", jobs, ""); err != nil {
		return err
	}
	at := later(5 * lease)
	for range jobs {
		if err := p.submit(ctx, input{Plan: steady, At: at}); err != nil {
			return err
		}
	}
	if err := p.eventually(ctx, "the jobs run", running); err != nil {
		return err
	}
	if _, err := p.worker("waits", jobs, ""); err != nil {
		return err
	}
	wait(ctx, lease/2)
	p.site.nodes[0].child.kill()
	wait(ctx, 2*lease)
	if err := p.site.startNode(0); err != nil {
		return err
	}
	return p.eventually(ctx, "the jobs end", over)
}

func twoLargeOutputs(ctx context.Context, p *play) error {
	const jobs = 3
	lease := p.endpoint().Lease
	at := later(4 * lease)
	for range jobs {
		if err := p.submit(ctx, input{Plan: deafOnce, At: at, Size: 8 * megabyte}); err != nil {
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
	return p.eventually(ctx, "the jobs end", over)
}

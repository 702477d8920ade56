package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/job"
	"flightline/streams"
)

// bareWithin bounds what the consumer does with one job.
const bareWithin = 20 * time.Second

// serveConsumer does what is the worker's part, from as many slots.
func serveConsumer(ctx context.Context, cfg config, w *wire) error {
	nc, err := cfg.connect("consumer")
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	for range cfg.Slots {
		g.Go(func() error { return consume(ctx, nc) })
	}
	err = w.ready(ready{}, noOrders)
	stop()
	return errors.Join(err, g.Wait())
}

// consume fetches a job, writes its two records and acks it, again and again.
func consume(ctx context.Context, nc *nats.Conn) error {
	f, err := newFetcher(nc, bareEndpoint)
	if err != nil {
		return err
	}
	defer f.close()
	for {
		m, err := f.next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = bareRun(ctx, nc, m)
		}
		if err != nil {
			return err
		}
	}
}

func bareRun(ctx context.Context, nc *nats.Conn, m *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, bareWithin)
	defer cancel()
	id := streams.JobOf(m.Subject)
	picked := bareRecord(id)
	picked.Header.Set(jetstream.ScheduleHeader, "@every 60s")
	picked.Header.Set(jetstream.ScheduleTargetHeader, streams.DueSubject(0, bareEndpoint, id, 1))
	picked.Header.Set(jetstream.ScheduleTTLHeader, streams.DueTTL())
	seq, err := write(ctx, nc, picked, 0)
	if err != nil {
		return err
	}
	ended := bareRecord(id)
	ended.Header.Set(bareStatus, "COMPLETED")
	if _, err := write(ctx, nc, ended, seq); err != nil {
		return err
	}
	return nc.Publish(m.Reply, []byte("+ACK"))
}

// fetcher pulls one message at a time on an inbox that it keeps.
type fetcher struct {
	nc      *nats.Conn
	subject string
	inbox   string
	sub     *nats.Subscription
	expires time.Duration
}

func newFetcher(nc *nats.Conn, endpoint string) (*fetcher, error) {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	return &fetcher{
		nc: nc, inbox: inbox, sub: sub, expires: 5 * time.Second,
		subject: streams.PullNext(streams.Jobs(endpoint), streams.Consumer(job.Normal)),
	}, nil
}

func (f *fetcher) close() { _ = f.sub.Unsubscribe() }

// next waits for a message.
func (f *fetcher) next(ctx context.Context) (*nats.Msg, error) {
	for {
		body := fmt.Appendf(nil, `{"batch":1,"expires":%d}`, f.expires.Nanoseconds())
		if err := f.nc.PublishRequest(f.subject, f.inbox, body); err != nil {
			return nil, err
		}
		m, err := f.sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		if m.Header.Get("Status") == "" {
			return m, nil
		}
	}
}

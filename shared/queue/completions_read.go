package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/streams"
)

// completionsAtOnce is how many completions are asked for at a time. They come
// without payloads.
const completionsAtOnce = 4096

// Completions calls each for every completion that is to be delivered now,
// until ctx ends. Several processes share them. each must not block. It sits
// out an outage.
func (q *Queue) Completions(ctx context.Context, each func(*Completion)) error {
	sweep, tries := newSweeper(q), newFirstTries(q)
	var sweeping sync.WaitGroup
	sweeping.Go(func() { sweep.run(ctx) })
	defer sweeping.Wait()
	known := func(c *Completion) {
		c.sweep, c.tries = sweep, tries
		each(c)
	}
	for ctx.Err() == nil {
		if err := q.consumeCompletions(ctx, known); err != nil && ctx.Err() == nil {
			q.log.WarnContext(ctx, "completions are not read, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(factsPause):
		}
	}
	return nil
}

func (q *Queue) consumeCompletions(ctx context.Context, each func(*Completion)) error {
	within, cancel := bounded(ctx)
	defer cancel()
	back := q.service.reconnected() // before the look at the server: it is that one, or back is closed
	server := q.nc.ConnectedServerId()
	consumer, err := q.js.Consumer(within, streams.Webhooks, streams.WebhookConsumer)
	if err != nil {
		return fmt.Errorf("bind consumer %s: %w", streams.WebhookConsumer, err)
	}
	failed := make(chan error, 1)
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		c, err := q.completionOf(m)
		if err != nil {
			q.log.ErrorContext(ctx, "completion dropped", "subject", m.Subject(), "error", err)
			if q.numbered(server) {
				_ = m.Term()
			}
			return
		}
		c.server = server
		each(c)
	}, jetstream.PullMaxMessages(completionsAtOnce), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		if errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound) {
			select {
			case failed <- err:
			default:
			}
		}
	}))
	if err != nil {
		return fmt.Errorf("consume %s: %w", streams.WebhookConsumer, err)
	}
	defer func() {
		consuming.Stop()
		<-consuming.Closed()
	}()
	select {
	case <-ctx.Done():
	case <-consuming.Closed():
		return errors.New("queue: the server refuses to hand out completions")
	case <-back:
		consuming.Drain() // what came before may be the other server's
		select {
		case <-ctx.Done():
		case <-consuming.Closed():
		}
	case err := <-failed:
		return err
	}
	return nil
}

func (q *Queue) completionOf(m jetstream.Msg) (*Completion, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", m.Subject(), err)
	}
	ep, id, _, err := streams.ParseCompletion(m.Subject())
	if err != nil {
		return nil, err
	}
	w, err := parseWire(m.Headers().Get(metaHeader))
	if err != nil {
		return nil, fmt.Errorf("decode job %s: %w", id, err)
	}
	var r record
	w.fill(&r, place{endpoint: ep}, id, meta.Sequence.Stream)
	c := &Completion{Job: r.Job, Replay: m.Headers().Get(replayHeader), q: q, refs: [2]*payloadRef{r.inRef, r.outRef}, msg: m, seq: r.seq}
	c.Ends = endOf(meta.Timestamp, m.Headers().Get(jetstream.MsgTTLHeader))
	c.Fresh = meta.NumDelivered == 1 && c.Replay == "" && m.Headers().Get(triedHeader) == ""
	if input := m.Headers().Get(inputHeader); input != "" && w.tellsAll() {
		c.short, c.whole = []byte(input), true
	}
	return c, nil
}

// endOf is when the server removes a completion that it has since then.
func endOf(since time.Time, ttl string) time.Time {
	if d, err := time.ParseDuration(ttl); err == nil {
		return since.Add(d)
	}
	return since.Add(streams.WebhooksAge)
}

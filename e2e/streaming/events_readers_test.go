package streaming

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/client"
	eventlog "flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/testenv/program"
	"flightline/streams"
)

// heard is what a subscriber got: the events of each attempt, in order.
type heard struct {
	list  map[string][]string
	count int
}

func (h *heard) add(id job.ID, attempt, run int, kind string) {
	if h.list == nil {
		h.list = map[string][]string{}
	}
	key := fmt.Sprint(id, " ", attempt)
	h.list[key] = append(h.list[key], fmt.Sprint(kind, " ", run))
	h.count++
}

// overHTTP reads n events of the API's, 7 at a time: each time it stops, and
// resumes with the last id.
func (s *telling) overHTTP(ctx context.Context, n int) (h heard, err error) {
	c, err := client.New(s.url, toldKey)
	after := "0"
	for err == nil && h.count < n {
		part := 0
		subscription := c.Events(toldEndpoint, client.EventsOptions{After: after})
		for e, broken := range subscription.All(ctx) {
			if err = broken; err != nil {
				break
			}
			h.add(e.Job, e.Attempt, e.Run, e.Type)
			if part++; part == 7 || h.count == n {
				break
			}
		}
		after = subscription.Cursor()
	}
	return h, err
}

// bySequence reads n events of the log itself, 11 at a time.
func (s *telling) bySequence(ctx context.Context, n int) (h heard, err error) {
	log, err := eventlog.New(s.bus.NC, s.bus.JS, nil)
	after, stop := uint64(0), errors.New("stop")
	for err == nil && h.count < n && ctx.Err() == nil {
		part := 0
		err = log.Follow(ctx, after, func(e eventlog.Event) error {
			h.add(e.Job, e.Attempt, e.Run, e.Kind.Type())
			after = e.Seq
			if part++; part == 11 || h.count == n {
				return stop
			}
			return nil
		})
		if errors.Is(err, stop) {
			err = nil
		}
	}
	return h, errors.Join(err, ctx.Err())
}

// durably reads n events with the durable consumer, 5 at a time. One in 20 is
// given back after it was handled, and so comes again; after a crash it would,
// but 30 s later.
func (s *telling) durably(ctx context.Context, n int) (h heard, err error) {
	handled := map[string]bool{}
	for h.count < n && err == nil {
		var consumer jetstream.Consumer
		if consumer, err = s.bus.JS.Consumer(ctx, streams.Events, streams.Subscriber); err != nil {
			break
		}
		for range 5 {
			var m jetstream.Msg
			if m, err = consumer.Next(jetstream.FetchMaxWait(program.Soon)); err != nil {
				break
			}
			list, bad := eventlog.FromMsg(m)
			if err = bad; err != nil {
				break
			}
			again := false
			for _, e := range list {
				if !handled[e.ID()] {
					handled[e.ID()] = true
					h.add(e.Job, e.Attempt, e.Run, e.Kind.Type())
					again = again || h.count%20 == 0
				}
			}
			if again {
				err = m.Nak()
				continue
			}
			if err = m.DoubleAck(ctx); err != nil || h.count == n {
				break
			}
		}
	}
	return h, err
}

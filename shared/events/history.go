package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/streams"
)

// Past is a part of an endpoint's history that is read from its newest end.
type Past struct {
	// Kinds are those wanted. None means all.
	Kinds []Kind
	// Since leaves out what was written before. The zero time means nothing.
	Since time.Time
	// Before is where to go on: what the call before returned as next. 0 means
	// the newest end.
	Before uint64
	// Most bounds the number of events; at least 1.
	Most int
}

// Before reads an endpoint's events backwards, in the order of EVENTS, the last
// one first. next is the Before of the following page, 0 after the last one; a
// page may be short or empty all the same, because the number of requests to
// the server is bounded. The log is at most about a second behind while a
// recorder runs. It returns ErrUnavailable.
func (l *Log) Before(ctx context.Context, endpoint string, p Past) (page []Event, next uint64, err error) {
	p.Most = max(1, p.Most)
	if p.Before == 0 {
		last, err := l.lastSequence(ctx)
		if err != nil || last == 0 {
			return nil, 0, err
		}
		p.Before = last + 1
	}
	filters := []string{streams.EventFilter(endpoint, "", "")}
	if len(p.Kinds) > 0 {
		filters = filters[:0]
		for _, kind := range p.Kinds {
			filters = append(filters, streams.EventFilter(endpoint, string(kind), ""))
		}
	}
	for _, filter := range filters {
		some, until, err := l.walk(ctx, filter, p)
		if err != nil {
			return nil, 0, err
		}
		page, next = append(page, some...), max(next, until)
	}
	return newest(page, next, p.Most)
}

// newest takes the last events of walks that all have come down to next.
func newest(page []Event, next uint64, most int) ([]Event, uint64, error) {
	slices.SortFunc(page, func(a, b Event) int { return cmp.Compare(b.Seq, a.Seq) })
	if end := slices.IndexFunc(page, func(e Event) bool { return e.Seq < next }); end >= 0 {
		page = page[:end]
	}
	if len(page) > most {
		page, next = page[:most], page[most-1].Seq
	}
	return page, next, nil
}

// walk reads the events of one filter backwards.
func (l *Log) walk(ctx context.Context, filter string, p Past) ([]Event, uint64, error) {
	first, err := l.firstSince(ctx, filter, p.Since)
	if err != nil || first == 0 {
		return nil, 0, err
	}
	got, next, err := bus.Backwards(ctx, l.nc, bus.Back{
		Stream: streams.DirectGet(streams.Events), Filter: filter, First: first, Before: p.Before, Most: p.Most, Data: true,
	})
	if err != nil {
		return nil, 0, away(ctx, "read events", err)
	}
	some := make([]Event, 0, len(got))
	for _, m := range got {
		e, err := decode(m)
		if err != nil {
			return nil, 0, err
		}
		some = append(some, e)
	}
	return some, next, nil
}

// lastSequence is that of the last event of all; 0 if there is none.
func (l *Log) lastSequence(ctx context.Context) (uint64, error) {
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	answer, err := l.nc.RequestWithContext(within, streams.StreamInfo(streams.Events), nil)
	if err != nil {
		return 0, away(ctx, "look at "+streams.Events, err)
	}
	var info struct {
		Error *apiError `json:"error"`
		State struct {
			Last uint64 `json:"last_seq"` //nolint:tagliatelle // the server's name
		} `json:"state"`
	}
	switch err := json.Unmarshal(answer.Data, &info); {
	case err != nil:
		return 0, fmt.Errorf("look at %s: %w", streams.Events, err)
	case info.Error != nil:
		return 0, away(ctx, "look at "+streams.Events, info.Error)
	}
	return info.State.Last, nil
}

// firstSince is the sequence of the first event of the filter that was written
// at or after since; 0 if there is none.
func (l *Log) firstSince(ctx context.Context, filter string, since time.Time) (uint64, error) {
	if since.IsZero() {
		return 1, nil
	}
	body, err := json.Marshal(map[string]any{"start_time": since.UTC(), "next_by_subj": filter})
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", filter, err)
	}
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	answer, err := l.nc.RequestWithContext(within, streams.DirectGet(streams.Events), body)
	if err != nil {
		return 0, away(ctx, "read events", err)
	}
	return sequenceOf(answer)
}

func sequenceOf(answer *nats.Msg) (uint64, error) {
	switch status := answer.Header.Get("Status"); status {
	case "":
		return bus.Sequence(answer), nil
	case "404":
		return 0, nil
	default:
		return 0, fmt.Errorf("read events: %w: %w", ErrUnavailable, errors.New(status+" "+answer.Header.Get("Description")))
	}
}

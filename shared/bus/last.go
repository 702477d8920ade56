package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// LastOfEach reads the last message of every subject that matches the filter, which may
// have wildcards, in no particular order. No subject is missing that has a message during
// all of the call, and no write that was acknowledged before it: a watch of nats.go, which
// ends its first values by counting them, misses some while the stream is written
// (docs/adr/0077-lists-without-a-watch.md). It returns ErrUnavailable when JetStream is
// away, and what ClientConfig.Missing says if the stream does not exist.
func (c *Client) LastOfEach(ctx context.Context, stream, filter string) ([]*Message, error) {
	var last uint64
	if c.Clustered() { // any replica may answer, and lag
		state, err := c.StreamState(ctx, stream)
		if err != nil {
			return nil, err
		}
		last = state.LastSeq
	}
	found, err := UntilAnswered(ctx, func() ([]*nats.Msg, error) { return c.tryLastOfEach(ctx, stream, filter, last) })
	if err != nil {
		return nil, err
	}
	all := make([]*Message, 0, len(found))
	for _, got := range found {
		m, err := messageOf(got)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// tryLastOfEach returns ErrUnavailable also if the replica that answered lacks a write up
// to the sequence last.
func (c *Client) tryLastOfEach(ctx context.Context, stream, filter string, last uint64) ([]*nats.Msg, error) {
	found, upTo, err := lastOfAll(ctx, c.nc, stream, []string{filter}, true)
	if errors.Is(err, ErrTooMany) {
		var subjects []string
		if subjects, err = c.subjects(ctx, stream, filter); err == nil {
			found, upTo, err = lastOfAll(ctx, c.nc, stream, subjects, true)
		}
	}
	switch {
	case errors.Is(err, ErrUnavailable): // the leader can say more, as that there is no stream
		if _, missing := c.StreamState(ctx, stream); missing != nil {
			err = missing
		}
		return nil, err
	case err != nil:
		return nil, err
	case len(found) == 0: // such an answer does not say up to where
		if _, err := c.LeaderLast(ctx, stream, filter); errors.Is(err, ErrNoMessage) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	if upTo == 0 || upTo < last {
		return nil, fmt.Errorf("%w: read %s: a replica lacks messages that others have", ErrUnavailable, stream)
	}
	return found, nil
}

// subjects asks the stream's leader for the subjects of messages that match the filter.
func (c *Client) subjects(ctx context.Context, stream, filter string) ([]string, error) {
	var all []string
	for {
		body, err := json.Marshal(map[string]any{"subjects_filter": filter, "offset": len(all)})
		if err != nil {
			return nil, err
		}
		var page struct {
			Total int `json:"total"`
			State struct {
				Subjects map[string]uint64 `json:"subjects"`
			} `json:"state"`
		}
		if err := c.Query(ctx, stream, StreamInfo(stream), body, &page); err != nil {
			return nil, err
		}
		for subject := range page.State.Subjects {
			all = append(all, subject)
		}
		if len(page.State.Subjects) == 0 || len(all) >= page.Total {
			return all, nil
		}
	}
}

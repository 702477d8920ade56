package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"flightline/shared/endpoint"
	"flightline/streams"
)

// A server that was killed builds its streams anew from their files, and a
// message that gave way to a newer one on its subject left no mark there. So
// if the newer one was removed meanwhile, the older one is back: a record that
// was forgotten says IN_PROGRESS again. Such a ghost is told from the living
// by its queue message, which a run that goes on has, and which was removed
// in a way that leaves a mark. Records for which that is not so, because their
// message was replaced, the run detached from it, or an end had its ttl
// changed, are kept on disk to their physical end (docs/adr/0013).

// proves reports whether the queue is the one that held r's message, so that it
// was removed there: a queue that was made again after it had been lost, lost
// messages to damaged files, or went back with its server proves nothing. That
// of a deleted endpoint proves enough.
func (q *Queue) proves(ctx context.Context, at place, r *record) (bool, error) {
	var info struct {
		Error  *apiError `json:"error"`
		Config struct {
			Metadata map[string]string `json:"metadata"`
		} `json:"config"`
		State struct {
			Last uint64           `json:"last_seq"` //nolint:tagliatelle // the server's name
			Lost *json.RawMessage `json:"lost"`
		} `json:"state"`
	}
	stream := streams.Jobs(at.endpoint)
	const lostToo = `{"deleted_details":true}` // only such an answer names what the server lost
	if err := q.inquireFor(ctx, streams.StreamInfo(stream), []byte(lostToo), &info); err != nil {
		return false, err
	}
	if info.Error != nil {
		err := q.explain(ctx, info.Error, stream, "look at "+stream)
		if errors.Is(err, errDeleted) {
			return true, nil
		}
		return false, err
	}
	lost := r.changed.Before(streams.Recovered(info.Config.Metadata))
	return !lost && info.State.Lost == nil && r.queueSeq <= info.State.Last, nil
}

// ghost reports whether r, which has not ended, is one, and removes it. It asks
// only if r is so old that it may have been forgotten. A message of a later
// attempt is none of r's: a retry follows an end. It returns errConflict if r
// is no longer what is stored.
func (q *Queue) ghost(ctx context.Context, at place, r *record) (bool, error) {
	young := cmp.Or(q.cfg.ForgetGrace, forgetGrace) + endpoint.MinRetention
	if r.Status.Terminal() || r.seq == 0 || r.kept || q.Now().Sub(r.changed) < young {
		return false, nil
	}
	switch msg, err := q.readMessage(ctx, at, r.ID); {
	case err == nil && msg.Attempt <= r.Attempt:
		return false, nil
	case err != nil && !errors.Is(err, errNoMessage):
		return false, err
	}
	if proven, err := q.proves(ctx, at, r); err != nil || !proven {
		return false, err
	}
	now, err := q.readRecord(ctx, at, r.ID, r.Attempt) // an end is written before its message goes
	switch {
	case errors.Is(err, errNoMessage):
		return true, nil
	case err != nil:
		return false, err
	case now.seq != r.seq:
		return false, errConflict
	}
	return true, q.remove(ctx, streams.Records(at.partition), r.seq)
}

package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/streams"
)

const (
	// maxDeleted is how many deleted sequences of a stream are compared with those
	// that could not be read: the server sends all of them in one answer.
	maxDeleted = 200_000
	// emptyPages is how many pages in a row may be empty before the rest of a
	// stream counts as not readable.
	emptyPages = 3
	// silentFor is how long a stream may give no answer.
	silentFor = time.Minute
)

// span is a range of sequences, both included.
type span struct{ from, to uint64 }

// walk reads all messages of a stream that were there when it began.
type walk struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	stream string
	each   func(*nats.Msg) error

	before jetstream.StreamState
	seq    uint64 // the last one that was looked at
	read   uint64 // messages
	bytes  uint64
	// unread are the sequences that no page had, most of them deleted; nil if
	// there are more than maxDeleted.
	unread []span
}

// run reads until the last sequence of the beginning. A stream that is deleted
// meanwhile ends it with jetstream.ErrStreamNotFound.
func (w *walk) run(ctx context.Context) error {
	state, err := w.state(ctx)
	if err != nil {
		return err
	}
	w.before, w.seq = state, max(1, state.FirstSeq)-1
	heard, size, empty := time.Now(), leastBytes, 0
	for w.seq < w.before.LastSeq && empty < emptyPages {
		n, err := w.page(ctx, size)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && n > 0:
			heard, size, empty = time.Now(), min(2*size, pageBytes), 0
			continue
		case err == nil:
			empty++
		case !bearable(err) || time.Since(heard) > silentFor:
			return err
		case deleted(ctx, w.js, w.stream):
			return jetstream.ErrStreamNotFound
		default:
			size = max(size/2, leastBytes)
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
		}
	}
	w.skip(w.before.LastSeq)
	return nil
}

// page reads what comes next, and returns how many messages there were.
func (w *walk) page(ctx context.Context, size int) (int, error) {
	page, err := bus.BatchGet(ctx, w.nc, streams.DirectGet(w.stream), bus.Batch{From: w.seq + 1, Filter: ">", Most: pageMost, MaxBytes: size})
	if err != nil {
		return 0, err
	}
	for _, m := range page {
		seq := bus.Sequence(m)
		w.skip(min(seq-1, w.before.LastSeq))
		if w.seq = seq; seq > w.before.LastSeq {
			return len(page), nil
		}
		w.read++
		w.bytes += uint64(len(m.Data))
		if err := w.each(m); err != nil {
			return 0, err
		}
	}
	return len(page), nil
}

// skip notes that no message came up to a sequence.
func (w *walk) skip(to uint64) {
	if to > w.seq && w.before.NumDeleted <= maxDeleted {
		w.unread = append(w.unread, span{w.seq + 1, to})
	}
	w.seq = max(w.seq, to)
}

func (w *walk) state(ctx context.Context, opts ...jetstream.StreamInfoOpt) (jetstream.StreamState, error) {
	asked, cancel := context.WithTimeout(ctx, stalled)
	defer cancel()
	s, err := w.js.Stream(asked, w.stream)
	if err != nil || len(opts) == 0 {
		return stateOf(s), err
	}
	info, err := s.Info(asked, opts...)
	if err != nil {
		return jetstream.StreamState{}, err
	}
	return info.State, nil
}

func stateOf(s jetstream.Stream) jetstream.StreamState {
	if s == nil {
		return jetstream.StreamState{}
	}
	return s.CachedInfo().State
}

// errUncounted means that deleted messages cannot be told from damaged ones.
var errUncounted = errors.New("it has too many deleted messages, and changed while it was read: whether one of them is damaged cannot be told; try again while it is quiet")

// loss is what is wrong with the messages of a stream.
type loss struct {
	// unreadable is how many there are that cannot be read, where the sequences of
	// the first of them, "" if they are not known.
	unreadable uint64
	where      string
	// lost is what the server left out of its files, nil for nothing.
	lost *jetstream.LostStreamData
}

// damage compares what was read with what the server has. A message that was
// deleted is not damaged. It returns errUncounted if that cannot be told.
func (w *walk) damage(ctx context.Context) (l loss, err error) {
	now, err := w.state(ctx)
	if err != nil {
		return l, err
	}
	if max(w.before.NumDeleted, now.NumDeleted) > maxDeleted {
		if now.LastSeq != w.before.LastSeq || now.Msgs != w.before.Msgs {
			return l, errUncounted
		}
		l.unreadable = w.before.Msgs - min(w.read, w.before.Msgs)
		return l, nil
	}
	// Only an answer with details names what the server lost.
	if now, err = w.state(ctx, jetstream.WithDeletedDetails(true)); err != nil {
		return l, err
	}
	left := undeleted(w.unread, now.FirstSeq, now.LastSeq, now.Deleted)
	return loss{count(left), spans(left), now.Lost}, nil
}

// undeleted are the sequences from first to last that are not among the deleted,
// which are in order.
func undeleted(all []span, first, last uint64, deleted []uint64) []span {
	var left []span
	for _, s := range all {
		s.from, s.to = max(s.from, first), min(s.to, last)
		at, _ := slices.BinarySearch(deleted, s.from)
		for ; s.from <= s.to; at++ {
			end := s.to
			if at < len(deleted) && deleted[at] <= s.to {
				end = deleted[at] - 1
			}
			if end >= s.from {
				left = append(left, span{s.from, end})
			}
			if at >= len(deleted) || deleted[at] > s.to {
				break
			}
			s.from = deleted[at] + 1
		}
	}
	return left
}

func count(all []span) (n uint64) {
	for _, s := range all {
		n += s.to - s.from + 1
	}
	return n
}

// spans names the first sequences.
func spans(all []span) string {
	const shown = 5
	var names []string
	for _, s := range all[:min(len(all), shown)] {
		if s.from == s.to {
			names = append(names, fmt.Sprint(s.from))
		} else {
			names = append(names, fmt.Sprintf("%d to %d", s.from, s.to))
		}
	}
	if len(all) > shown {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

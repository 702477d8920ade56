package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/streams"
)

const (
	// sweepEvery is how long what is done gathers. Fewer than sweepLeast then
	// are acknowledged one by one.
	sweepEvery, sweepLeast = 50 * time.Millisecond, 64
	// sweepRun and sweepShare say how many one purge must remove to be worth it:
	// so many at least, and that part of the stream, for a purge writes down
	// which subjects are left. Those who waited for sweepSoon are enough.
	sweepRun, sweepShare, sweepSoon = 2048, 2, 400 * time.Millisecond
	// sweepHold is how long one waits for older ones that are not done.
	sweepHold = 800 * time.Millisecond
	// sweepAway is for how long no purge is tried after one had to wait so long.
	sweepAway = 5 * time.Second
)

// sweeper takes completions that are done out of the queue. An acknowledgement
// has the server remove one message, for about as much as its delivery cost;
// the oldest messages of the stream, as many as are done without one between
// them that is not, go with one purge at a third of that. A message is known
// by its sequence, so no purge can take one that another process has in hand,
// or one that came meanwhile: those end the run. Nor can one that comes late,
// of a process that stood still: what is done stays done. Where the server may
// have given its numbers to others, all are left to come again (numbered). Where an older one waits for its
// retry, or other processes have every second one, each is acknowledged.
type sweeper struct {
	q    *Queue
	wake chan struct{}

	mu     sync.Mutex
	done   []swept
	closed bool

	// of run alone
	held []swept
	away time.Time
}

// swept is one that is done, since at.
type swept struct {
	seq    uint64
	msg    jetstream.Msg
	at     time.Time
	server string
}

// numbered reports whether the sequences that server gave still name the same
// messages. A server that is alone and was started anew after a power loss may
// have lost some that it had handed out before they were on the disk, and has
// numbered others like them since. Replicas, and a server that hands out what is
// on the disk only, lose none.
func (q *Queue) numbered(server string) bool {
	return q.barrier.Load() == nil || q.nc.ConnectedServerId() == server
}

func newSweeper(q *Queue) *sweeper { return &sweeper{q: q, wake: make(chan struct{}, 1)} }

// add removes a message soon; at once when the sweeper is closed.
func (s *sweeper) add(d swept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.acknowledge([]swept{d})
		return
	}
	if s.done = append(s.done, d); len(s.done) == 1 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// run sweeps until ctx ends; what is left then is acknowledged.
func (s *sweeper) run(ctx context.Context) {
	defer s.close()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		if len(s.held) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-s.wake:
			}
		}
		pause.Reset(sweepEvery)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.q.log.DebugContext(ctx, "completions are acknowledged one by one", "error", err)
		}
	}
}

func (s *sweeper) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.acknowledge(append(s.held, s.done...))
	s.held, s.done = nil, nil
}

func (s *sweeper) acknowledge(all []swept) {
	for _, d := range all {
		if s.q.numbered(d.server) {
			_ = d.msg.Ack()
		}
	}
}

// sweep removes what can be removed now.
func (s *sweeper) sweep(ctx context.Context) error {
	s.mu.Lock()
	s.held, s.done = append(s.held, s.done...), s.done[:0:0]
	s.mu.Unlock()
	s.held = slices.DeleteFunc(s.held, func(d swept) bool { return !s.q.numbered(d.server) })
	now := time.Now()
	if len(s.held) < sweepLeast || now.Before(s.away) {
		s.acknowledge(s.held)
		s.held = nil
		return nil
	}
	err := s.purge(ctx, now)
	late := func(d swept) bool { return now.Sub(d.at) > sweepHold }
	if slices.ContainsFunc(s.held, late) {
		s.away = now.Add(sweepAway)
		s.acknowledge(s.held)
		s.held = nil
	}
	return err
}

// purge removes the oldest messages of the stream if they are done.
func (s *sweeper) purge(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	stream, err := s.q.js.Stream(ctx, streams.Webhooks)
	if err != nil {
		return foreign(err)
	}
	state := stream.CachedInfo().State
	slices.SortFunc(s.held, func(a, b swept) int { return cmp.Compare(a.seq, b.seq) })
	s.held = slices.CompactFunc(s.held, func(a, b swept) bool { return a.seq == b.seq }) // handed out twice
	s.held = after(s.held, state.FirstSeq-1)                                             // the others are gone
	n, waited := runFrom(s.held, state.FirstSeq, now)
	if n == 0 || waited < sweepSoon && n < max(sweepRun, int(state.Msgs/sweepShare)) { //nolint:gosec // messages fit
		return nil
	}
	last := s.held[n-1].seq
	if !s.q.numbered(s.held[0].server) {
		return ErrUnavailable // it was started anew since the look at the stream
	}
	if err := s.q.command(ctx, streams.StreamPurge(streams.Webhooks), fmt.Appendf(nil, `{"seq":%d}`, last+1), "purge "+streams.Webhooks); err != nil {
		return err
	}
	s.held = slices.Clone(after(s.held, last))
	return nil
}

// after are those beyond a sequence.
func after(sorted []swept, seq uint64) []swept {
	i, _ := slices.BinarySearchFunc(sorted, seq+1, func(d swept, seq uint64) int { return cmp.Compare(d.seq, seq) })
	return sorted[i:]
}

// runFrom is how many messages from the sequence first on are done, and how
// long one of them has been.
func runFrom(sorted []swept, first uint64, now time.Time) (n int, waited time.Duration) {
	for n < len(sorted) && sorted[n].seq == first+uint64(n) {
		waited = max(waited, now.Sub(sorted[n].at))
		n++
	}
	return n, waited
}

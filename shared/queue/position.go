package queue

import (
	"context"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// Position is where a job stands and, if it waits, how many come first.
type Position struct {
	// Job has no Output.
	Job job.Job
	// Least and Most bound how many jobs will be handed out before it; they are
	// the same if the number is exact, and 0 if the job does not wait.
	Least, Most int
	// Offered: the job waits though it was handed out already. Its worker
	// has not claimed it yet, or released it; it comes again, at
	// the latest when a lease is over.
	Offered bool
}

// positionScan is how many places are looked at, one by one, to turn the bounds
// of a position into a number.
const positionScan = 500

// Position returns where a job stands. The number of jobs before it is computed
// from what the consumers count, so it costs a few requests however long the
// queue is. It is exact if the job is among the first or the last 500 places
// of the queue, or if neither the other class nor jobs that were cancelled
// left gaps; else its bounds are those that the gaps allow. The queue moves
// on meanwhile. It returns job.ErrNotFound and bus.ErrUnavailable.
func (ct *Counts) Position(ctx context.Context, e endpoint.Endpoint, id job.ID) (Position, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	at := record.LocationOf(e)
	r, err := ct.q.current(ctx, at, id)
	if err != nil {
		return Position{}, err
	}
	p := Position{Job: r.Job}
	p.Job.Output = nil
	if r.Status != job.InQueue {
		return p, ct.q.bus.WaitDurable(ctx, streams.Records(e.Partition), r.Server)
	}
	normal, low, err := ct.q.read.consumers(ctx, e.ID)
	if err != nil {
		return Position{}, err
	}
	own := normal
	if r.Class == job.LowPriority {
		own = low
	}
	if r.QueueSeq <= own.Delivered.Stream {
		p.Offered = true
		return p, nil
	}
	_, last, err := ct.q.read.ends(ctx, streams.Jobs(e.ID))
	if err != nil {
		return Position{}, err
	}
	b := aheadOf(r.QueueSeq, own.Delivered.Stream, last, own.Pending)
	if b, err = ct.q.read.narrow(ctx, at, r, own, last, b); err != nil {
		return Position{}, err
	}
	p.Least, p.Most = b.least, b.most
	if r.Class == job.LowPriority {
		p.Least, p.Most = b.least+normal.Pending, b.most+normal.Pending
	}
	return p, nil
}

// between are the bounds of a count.
type between struct{ least, most int }

// aheadOf bounds how many messages of a class come before the sequence seq, of
// pending ones that follow the sequence delivered; last is the stream's last.
// Each sequence holds one message at most: so many fit before, and so many of
// the pending ones do not fit behind.
func aheadOf(seq, delivered, last uint64, pending int) between {
	before, behind := 0, 0
	if seq > delivered+1 {
		before = int(seq - delivered - 1) //nolint:gosec // far below 2^63
	}
	if last > seq {
		behind = int(last - seq) //nolint:gosec // as above
	}
	most := max(0, min(pending-1, before))
	return between{least: min(most, max(0, pending-1-behind)), most: most}
}

// narrow counts what is before the message, or behind it, if that is near.
func (rd reader) narrow(ctx context.Context, at record.Location, r *record.Record, own consumerInfo, last uint64, b between) (between, error) {
	filter := streams.ClassFilter(at.Endpoint, r.Class)
	count := func(from, to uint64) (int, error) {
		got, _, err := rd.bus.Backwards(ctx, bus.Back{
			Stream: streams.Jobs(at.Endpoint), Filter: filter, First: from, Before: to, Most: positionScan,
		})
		return len(got), err
	}
	switch {
	case b.least == b.most:
		return b, nil
	case r.QueueSeq-own.Delivered.Stream <= positionScan:
		n, err := count(own.Delivered.Stream+1, r.QueueSeq)
		return between{n, n}, err
	case last-r.QueueSeq < positionScan:
		n, err := count(r.QueueSeq+1, last+1)
		n = max(0, own.Pending-1-n)
		return between{n, n}, err
	}
	return b, nil
}

package webhook

import (
	"context"
	"sync"

	"flightline/shared/queue"
)

const (
	// bookAtOnce is how many deliveries are logged with one wait at most,
	// bookWriters how many such waits there are at a time, bookReady how many
	// may be ready meanwhile. Together they bound what a crash sends twice, 160;
	// a wait begins with what is ready, so that it is one at a low rate.
	bookAtOnce, bookWriters, bookReady = 64, 2, 32
)

// entry is a delivery that was answered well.
type entry struct {
	*order
	queue.Logged
}

// logbook writes deliveries down, all that came while those before were on
// their way, and takes them out of the queue then. So an origin's next post
// need not wait for the log, and many share a wait for the disk.
type logbook struct {
	service *Service
	in      chan entry
	writers sync.WaitGroup
}

func (s *Service) openBook(ctx context.Context) *logbook {
	b := &logbook{service: s, in: make(chan entry, bookReady)}
	for range bookWriters {
		b.writers.Go(func() { b.write(ctx) })
	}
	return b
}

// close returns when all is written that was added before.
func (b *logbook) close() {
	close(b.in)
	b.writers.Wait()
}

// add waits while more is to be written than can be.
func (b *logbook) add(e entry) { b.in <- e }

func (b *logbook) write(ctx context.Context) {
	for first := range b.in {
		entries, list := b.gather(first)
		errs := b.service.queue.LogDeliveries(ctx, list)
		var ends sync.WaitGroup
		for i, e := range entries {
			ends.Go(func() { b.end(ctx, e, errs[i]) })
		}
		ends.Wait()
	}
}

// gather is the first one with what waits behind it.
func (b *logbook) gather(first entry) ([]entry, []queue.Logged) {
	entries, list := []entry{first}, []queue.Logged{first.Logged}
	for len(entries) < bookAtOnce {
		select {
		case e, open := <-b.in:
			if !open {
				return entries, list
			}
			entries, list = append(entries, e), append(list, e.Logged)
		default:
			return entries, list
		}
	}
	return entries, list
}

// end tries an entry by itself if it was not logged with the others.
func (b *logbook) end(ctx context.Context, e entry, err error) {
	s := b.service
	ctx = s.within(ctx, e.order)
	if err != nil {
		err = s.logDelivery(ctx, e.order, e.Delivery, e.After)
	}
	if err != nil {
		s.putOff(ctx, e.order, err)
		return
	}
	s.point(AfterLog)
	s.tried(e.Outcome)
	e.Done(ctx)
	s.answered(ctx, e.order)
}

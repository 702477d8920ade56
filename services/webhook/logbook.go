package webhook

import (
	"context"
	"sync"
	"time"

	"flightline/shared/queue"
)

const (
	// bookWait is how long deliveries gather that are logged together, bookAtOnce
	// how many at most, bookWriters how many such messages are on their way at a
	// time, bookReady how many may be ready meanwhile. With the posts that run
	// they bound what a crash sends twice.
	bookWait                           = 8 * time.Millisecond
	bookAtOnce, bookWriters, bookReady = 256, 2, 256
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
	service   *Service
	in        chan entry
	full      chan struct{} // no more fits in
	writers   sync.WaitGroup
	gathering sync.Mutex
}

func (s *Service) openBook(ctx context.Context) *logbook {
	b := &logbook{service: s, in: make(chan entry, bookReady), full: make(chan struct{}, 1)}
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
func (b *logbook) add(e entry) {
	select {
	case b.in <- e:
		return
	default:
	}
	select {
	case b.full <- struct{}{}:
	default:
	}
	b.in <- e
}

func (b *logbook) write(ctx context.Context) {
	p := &page{make([]*order, 0, bookAtOnce), make([]queue.Logged, 0, bookAtOnce)}
	for b.gather(p) {
		errs := b.service.queue.LogDeliveries(ctx, p.list)
		var ends sync.WaitGroup
		ends.Go(func() {
			for i := range p.entries {
				if errs[i] == nil {
					b.end(ctx, p.entries[i], &p.list[i], nil)
				}
			}
		})
		for i := range p.entries {
			if errs[i] != nil {
				ends.Go(func() { b.end(ctx, p.entries[i], &p.list[i], errs[i]) })
			}
		}
		ends.Wait()
	}
}

// page is what is logged together.
type page struct {
	entries []*order
	list    []queue.Logged
}

// gather fills the page with the next entry and what comes within bookWait; it
// reports false at the end. Nothing is taken meanwhile: that would wake this
// goroutine for each.
func (b *logbook) gather(p *page) bool {
	clear(p.entries)
	clear(p.list)
	p.entries, p.list = p.entries[:0], p.list[:0]
	b.gathering.Lock()
	defer b.gathering.Unlock()
	e, open := <-b.in
	if open {
		select {
		case <-b.full:
		case <-time.After(bookWait):
		}
	}
	for open {
		p.entries, p.list = append(p.entries, e.order), append(p.list, e.Logged)
		if len(p.list) == bookAtOnce {
			break
		}
		select {
		case e, open = <-b.in:
		default:
			open = false
		}
	}
	return len(p.list) > 0
}

// end tries an entry by itself if it was not logged with the others.
func (b *logbook) end(ctx context.Context, o *order, d *queue.Logged, err error) {
	s := b.service
	ctx = s.within(ctx, o)
	if err != nil {
		err = s.logDelivery(ctx, o, d.Delivery, d.After)
	}
	if err != nil {
		s.putOff(ctx, o, err)
		return
	}
	s.point(AfterLog)
	s.tried(d.Outcome)
	o.Done(ctx)
	s.answered(ctx, o)
}

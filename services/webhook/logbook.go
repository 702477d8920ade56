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
	bookWait                           = 4 * time.Millisecond
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
	writers   sync.WaitGroup
	gathering sync.Mutex
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
	for {
		entries, list := b.gather()
		if len(list) == 0 {
			return
		}
		errs := b.service.queue.LogDeliveries(ctx, list)
		var ends sync.WaitGroup
		ends.Go(func() {
			for i, e := range entries {
				if errs[i] == nil {
					b.end(ctx, e, nil)
				}
			}
		})
		for i, e := range entries {
			if errs[i] != nil {
				ends.Go(func() { b.end(ctx, e, errs[i]) })
			}
		}
		ends.Wait()
	}
}

// gather is the next one with what comes within bookWait; none at the end.
// Nothing is taken meanwhile: that would wake this goroutine for each.
func (b *logbook) gather() (entries []entry, list []queue.Logged) {
	b.gathering.Lock()
	defer b.gathering.Unlock()
	e, open := <-b.in
	if open {
		<-time.After(bookWait)
	}
	for open {
		entries, list = append(entries, e), append(list, e.Logged)
		if len(list) == bookAtOnce {
			break
		}
		select {
		case e, open = <-b.in:
		default:
			open = false
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

package queue

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go"

	"flightline/streams"
)

// Logged is an attempt to deliver for LogDeliveries. After is the place of its
// completion's last one in the log, 0 if there was none.
type Logged struct {
	Delivery
	After uint64
}

// LogDeliveries is LogDelivery for many that are on their way at once and
// share a wait for the disk: errs has the error of each. Those that succeeded at
// the first try share messages, without a look at what is there already. It
// asks once only: one that says ErrUnavailable may be there or not.
func (q *Queue) LogDeliveries(ctx context.Context, list []Logged) (errs []error) {
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	errs = make([]error, len(list))
	pages := pagesOf(list)
	told := make([]error, len(pages))
	server := q.nc.ConnectedServerId()
	q.logAll(ctx, list, pages, told)
	err := q.durable(ctx, streams.Deliveries, server)
	for i, p := range pages {
		for _, at := range p.at {
			if errs[at] = told[i]; errs[at] == nil {
				errs[at] = err
			}
		}
	}
	return errs
}

// logPage is what goes into one message of the log: deliveries by their place
// in the list.
type logPage struct {
	subject string // "" for one by itself
	at      []int
	size    int
}

// message is the page's.
func (p *logPage) message(list []Logged) (*nats.Msg, error) {
	if len(p.at) == 1 {
		return list[p.at[0]].message(list[p.at[0]].After)
	}
	return firstTriesMessage(p.subject, list, p.at)
}

// pagesOf says which deliveries share a message. One that would be alone has a
// subject of its own, by which it is found at once.
func pagesOf(list []Logged) []*logPage {
	var pages []*logPage
	open := map[string]*logPage{}
	for i := range list {
		subject, size := list[i].firstTrySubject(), list[i].size()
		p := open[subject]
		if p == nil || subject == "" || len(p.at) == firstTriesMost || p.size+size > firstTriesBytes {
			p = &logPage{subject: subject}
			open[subject] = p
			pages = append(pages, p)
		}
		p.at, p.size = append(p.at, i), p.size+size
	}
	return pages
}

// logAll sends all pages side by side and sets the error of each.
func (q *Queue) logAll(ctx context.Context, list []Logged, pages []*logPage, errs []error) {
	log := func(i int) {
		m, err := pages[i].message(list)
		if err == nil {
			_, err = q.store(ctx, streams.Deliveries, m)
		}
		if errors.Is(err, errConflict) {
			err = ErrDeliveryLogged
		}
		errs[i] = err
	}
	var others sync.WaitGroup
	for i := 1; i < len(pages); i++ {
		others.Go(func() { log(i) })
	}
	if len(pages) > 0 {
		log(0)
	}
	others.Wait()
}

package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

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
// share a wait for the disk: errs has the error of each. It asks once only:
// one that says ErrUnavailable may be there or not.
func (q *Queue) LogDeliveries(ctx context.Context, list []Logged) (errs []error) {
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	errs = make([]error, len(list))
	server := q.nc.ConnectedServerId()
	err := q.logAll(ctx, list, errs)
	if err == nil {
		err = q.durable(ctx, streams.Deliveries, server)
	}
	for i := range errs {
		if errs[i] == nil {
			errs[i] = err
		}
	}
	return errs
}

// logAll sends all and sets errs as the answers come. Those that got none have
// errNoAnswer; an error it returns stands for all that have no other.
func (q *Queue) logAll(ctx context.Context, list []Logged, errs []error) error {
	inbox := q.nc.NewInbox()
	answers := make(chan *nats.Msg, len(list))
	listening, err := q.nc.ChanSubscribe(inbox+".*", answers)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer listening.Unsubscribe() //nolint:errcheck // a broken connection has no subscriptions
	open := 0
	for i, d := range list {
		m, err := d.message(d.After)
		if err != nil {
			errs[i] = err
			continue
		}
		m.Reply = inbox + "." + strconv.Itoa(i)
		if err := q.nc.PublishMsg(m); err != nil {
			errs[i] = fmt.Errorf("%w: %w", ErrUnavailable, err)
			continue
		}
		errs[i] = errNoAnswer
		open++
	}
	for ; open > 0; open-- {
		select {
		case answer := <-answers:
			i, err := strconv.Atoi(strings.TrimPrefix(answer.Subject, inbox+"."))
			if err == nil && i < len(errs) {
				errs[i] = loggedBy(answer)
			}
		case <-ctx.Done():
			q.service.failed()
			return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		}
	}
	return nil
}

// errNoAnswer is that of a delivery whose entry is on its way.
var errNoAnswer = fmt.Errorf("%w: the log does not answer", ErrUnavailable)

func loggedBy(answer *nats.Msg) error {
	if len(answer.Data) == 0 {
		return fmt.Errorf("%w: %w", ErrUnavailable, nats.ErrNoResponders)
	}
	_, err := readAck(streams.Deliveries, answer.Data)
	if errors.Is(err, errConflict) {
		return ErrDeliveryLogged
	}
	return err
}

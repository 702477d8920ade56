package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/events"
	"flightline/shared/web"
)

// subscriptionHold is how long events are told on one connection. Then it ends,
// and the client comes back with its Last-Event-ID.
const subscriptionHold = time.Hour

// subscription is one connection on which events are told.
type subscription struct {
	s        *Service
	endpoint string
	watch    *events.Watch
	held     context.Context //nolint:containedctx // the writer, which runs after the handler, is given none
	text     bytes.Buffer    // what is being written
	begun    bool
	over     bool // the end is told
}

// sendEvents answers with the events of the watch, which it closes.
func (s *Service) sendEvents(c *fiber.Ctx, watch *events.Watch, endpoint string) {
	held, release := web.Hold(c, subscriptionHold)
	v := &subscription{s: s, endpoint: endpoint, watch: watch, held: held}
	sendAsItComes(c, v.next, func() {
		watch.Close()
		release()
	})
}

// next returns the next events, or a comment when there were none for a while.
// An id without data moves the client's Last-Event-ID on, so that it misses
// nothing if it comes back before it has heard of an event, and skips what it
// does not want.
func (v *subscription) next() ([]byte, error) {
	if v.over {
		return nil, io.EOF
	}
	if v.text.Cap() > keptBuffer {
		v.text = bytes.Buffer{}
	}
	v.text.Reset() // it was written
	if !v.begun {
		v.begun = true
		fmt.Fprintf(&v.text, "retry: %d\nid: %d\n\n", comeBack.Milliseconds(), v.watch.After())
		return v.text.Bytes(), nil
	}
	ctx, cancel := context.WithTimeout(v.held, keepAlive)
	defer cancel()
	list, err := v.more(ctx)
	switch {
	case errors.Is(context.Cause(v.held), web.ErrGone):
		return nil, web.ErrGone
	case errors.Is(err, io.EOF):
		v.over = true
		v.text.WriteString("event: end\ndata: {}\n\n")
	case err != nil:
		return nil, err
	case len(list) > 0:
		if err := v.tell(list); err != nil {
			return nil, err
		}
	case v.held.Err() != nil:
		return nil, io.EOF // the server stops, or the hour is over; the client comes back
	default:
		fmt.Fprintf(&v.text, ": keep-alive\nid: %d\n\n", v.watch.After())
	}
	return v.text.Bytes(), nil
}

// eventsAgain is the pause before the log is read again after it was away.
const eventsAgain = 500 * time.Millisecond

// more waits for events and sits out an outage.
func (v *subscription) more(ctx context.Context) ([]events.Event, error) {
	for {
		list, err := v.watch.Next(ctx)
		if err == nil || errors.Is(err, io.EOF) {
			return list, err
		}
		if !errors.Is(err, events.ErrUnavailable) {
			v.s.log.ErrorContext(ctx, "events broken off", "endpoint", v.endpoint, "err", err)
			return nil, err
		}
		select {
		case <-time.After(eventsAgain):
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// tell writes events. The name is the type, so that browsers can listen to some.
func (v *subscription) tell(list []events.Event) error {
	for _, e := range list {
		data, err := json.Marshal(e.Cloud())
		if err != nil {
			return fmt.Errorf("encode event %s: %w", e.ID(), err)
		}
		v.text.WriteString("id: ")
		v.text.Write(strconv.AppendUint(v.text.AvailableBuffer(), e.Seq, 10))
		v.text.WriteString("\nevent: ")
		v.text.WriteString(e.Kind.Type())
		v.text.WriteString("\ndata: ")
		v.text.Write(data)
		v.text.WriteString("\n\n")
	}
	return nil
}

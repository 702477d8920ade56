package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/bus"
	"flightline/shared/retry"
	"flightline/shared/web"
)

// following is where in a list that is followed a request begins, if it resumes, and
// whether it ends with the newest entry of now. P is a place in the list.
type following[P any] struct {
	after        P
	resume, once bool
}

// followingOf reads the parameters follow and cursor, and the header Last-Event-ID. noun is
// what has an id in the list, as "an event".
func followingOf[P any](c *fiber.Ctx, noun string, parse func(text string) (P, error)) (p following[P], err error) {
	switch c.Query("follow") {
	case "", "true":
	case "false":
		p.once = true
	default:
		return p, web.Errorf(web.InvalidRequest, "follow is invalid; must be true or false, got %.20q", c.Query("follow"))
	}
	text, name := c.Query("cursor"), "cursor"
	p.resume = c.Context().QueryArgs().Has(name)
	if id := c.Get(headerLastEventID); id != "" { // the newer of the two: a client that came back
		text, name, p.resume = id, headerLastEventID, true
	}
	if !p.resume {
		return p, nil
	}
	if p.after, err = parse(strings.TrimSpace(text)); err != nil {
		return p, web.Errorf(web.InvalidRequest, "%s is invalid; must be the id of %s, or 0, got %.50q", name, noun, text)
	}
	return p, nil
}

const (
	// followHold is how long a list is followed on one connection. Then it ends, and the
	// client comes back with its Last-Event-ID.
	followHold = time.Hour
	// followRetryDelay is the pause before a list is read again after it was away.
	followRetryDelay = 500 * time.Millisecond
)

// followedList is a list that clients follow: the events of jobs, or the lines of workers.
type followedList interface {
	// read adds the next entries to what is written, and waits for them, for the time wait at
	// most. It returns io.EOF behind the last entry, bus.ErrUnavailable, after which it is
	// called again, and errPassed.
	read(ctx context.Context, wait time.Duration, to *follower) error
	// place is how far the list was looked at.
	place() string
}

// errPassed means that a list has passed entries that could not be shown: the client comes
// back, and gets them then.
var errPassed = errors.New("api: entries of a list could not be shown")

// follower is a connection on which a list is followed. An id without data moves the
// client's Last-Event-ID on, so that it misses nothing if it comes back before it has heard
// of an entry, and skips what it does not want.
type follower struct {
	log   *slog.Logger
	list  followedList
	held  context.Context //nolint:containedctx // the writer, which runs after the handler, is given none
	text  bytes.Buffer    // what is being written
	begun bool
	over  bool // the end is written
}

// sendList answers with the entries of a list as they come, and calls release when nobody
// reads them any more.
func (s *Service) sendList(c *fiber.Ctx, list followedList, release func()) {
	held, end := web.LongPoll(c, followHold)
	f := &follower{log: s.log, list: list, held: held}
	sendAsItComes(c, f.next, func() {
		release()
		end()
	})
}

// next returns the next entries, or a comment when none came for a while. It sits out an
// outage.
func (f *follower) next() ([]byte, error) {
	if f.over {
		return nil, io.EOF
	}
	if f.text.Cap() > maxKeptBuffer {
		f.text = bytes.Buffer{}
	}
	f.text.Reset() // it was written
	if !f.begun {
		f.begun = true
		fmt.Fprintf(&f.text, "retry: %d\nid: %s\n\n", reconnectDelay.Milliseconds(), f.list.place())
	}
	quiet := time.Now()
	for f.text.Len() == 0 {
		err := f.list.read(f.held, keepAlive-time.Since(quiet), f)
		switch {
		case errors.Is(context.Cause(f.held), web.ErrGone):
			return nil, web.ErrGone
		case errors.Is(err, errPassed):
			return nil, err
		case errors.Is(err, io.EOF):
			f.over = true
			f.text.WriteString("event: end\ndata: {}\n\n")
		case err != nil && !errors.Is(err, bus.ErrUnavailable):
			f.log.ErrorContext(f.held, "list that a client follows was broken off", "place", f.list.place(), "err", err)
			return nil, err
		case f.text.Len() > 0:
		case f.held.Err() != nil:
			return nil, io.EOF // the server stops, or followHold is over; the client comes back
		case time.Since(quiet) >= keepAlive:
			fmt.Fprintf(&f.text, ": keep-alive\nid: %s\n\n", f.list.place())
		case err != nil:
			_ = retry.Sleep(f.held, followRetryDelay) // the loop sees the end of held
		}
	}
	return f.text.Bytes(), nil
}

// add writes an entry. Its name is "" for none.
func (f *follower) add(id, name string, data []byte) {
	f.text.WriteString("id: ")
	f.text.WriteString(id)
	if name != "" {
		f.text.WriteString("\nevent: ")
		f.text.WriteString(name)
	}
	f.text.WriteString("\ndata: ")
	f.text.Write(data)
	f.text.WriteString("\n\n")
}

package api

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/web"
)

const (
	// streamHold is how long an answer is held for which no wait was asked: the
	// Python client gives up after 10 s (runpod-compat §0, 3).
	streamHold = 9 * time.Second
	// streamChunks bounds the chunks of one answer, or of one turn of an event
	// stream; the queue bounds their bytes.
	streamChunks = 1000
	// cancelledGrace is how long after its end a cancelled job's stream answers
	// those who do not count themselves. The Python client does not know that a
	// CANCELLED job is over; only an error ends its loop (runpod-compat §1.1).
	cancelledGrace = 30 * time.Second
)

// headerCursor tells the cursor after the chunks of an answer.
const headerCursor = "X-Stream-Cursor"

// streamQuery is how a client wants to read a stream.
type streamQuery struct {
	form  form
	wait  time.Duration
	after uint64 // the cursor that it gave
	own   bool   // it gave one; else the server's holds
}

func (s *Service) stream(c *fiber.Ctx) error {
	ask, err := streamQueryOf(c)
	if err != nil {
		return err
	}
	ctx, cancel := web.Prompt(c)
	defer cancel()
	e, id, err := s.job(ctx, c)
	if err != nil {
		return err
	}
	if ask.form == formAuto {
		ask.form = impliedForm(e.StreamFormat, c.Method(), c.Get(fiber.HeaderContentType), c.Get(fiber.HeaderUserAgent))
	}
	follow, err := s.queue.Follow(e, id)
	if err != nil {
		return err
	}
	if ask.form == formEvents {
		return s.streamEvents(ctx, c, follow, ask)
	}
	defer follow.Close()
	cursor := queue.Cursor{Seq: ask.after}
	if !ask.own {
		if cursor, err = s.queue.Cursor(ctx, e, id); err != nil {
			return err
		}
	}
	return s.streamBatch(c, follow, ask, cursor)
}

// streamBatch answers with the chunks behind the cursor, once there are some or
// the job is over, or with none when the wait is.
func (s *Service) streamBatch(c *fiber.Ctx, follow *queue.Follow, ask streamQuery, cursor queue.Cursor) error {
	held, release := web.Hold(c, ask.wait)
	defer release()
	chunks, j, more, err := follow.Next(held, cursor.Seq, streamChunks)
	switch {
	case errors.Is(context.Cause(held), web.ErrGone):
		return nil
	case err != nil:
		return err
	case !ask.own && len(chunks) == 0 && cancelledLongAgo(j, s.queue.Now()):
		return web.Errorf(web.JobNotFound, "the job was cancelled, and its stream is over")
	}
	last := cursor.Seq
	if len(chunks) > 0 {
		last = chunks[len(chunks)-1].Seq
	}
	c.Set(headerCursor, strconv.FormatUint(last, 10))
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	body := streamBody(ask.form, chunks, j, more)
	if ask.own || len(chunks) == 0 {
		return c.Send(body)
	}
	s.sendAndMove(c, body, j, cursor, last)
	return nil
}

// cancelledLongAgo reports whether whoever still asks does not know that a
// CANCELLED job is over.
func cancelledLongAgo(j *job.Job, now time.Time) bool {
	return j.Status == job.Cancelled && !now.Before(j.Finished.Add(cancelledGrace))
}

// moveWithin bounds the writing of the cursor, while the client waits for the
// last bytes of its answer.
const moveWithin = 3 * time.Second

// sendAndMove answers with the body, and moves the cursor when all of it was
// written to the socket but its last byte: so the next call of a client that
// has the answer, even one that reads no further than the JSON goes, finds the
// cursor moved; and an answer that was lost, or cut off since the cursor could
// not be moved, is told again.
func (s *Service) sendAndMove(c *fiber.Ctx, body []byte, j *job.Job, cursor queue.Cursor, last uint64) {
	end := len(body) - 1
	move := func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(context.Background(), moveWithin)
		defer cancel()
		if err := s.queue.MoveCursor(ctx, j, cursor, last); err != nil {
			s.log.WarnContext(ctx, "stream cursor not moved, its answer is told again", "endpoint", j.Endpoint, "job", j.ID, "err", err)
			return nil, err
		}
		return body[end:], nil
	}
	steps := []func() ([]byte, error){
		func() ([]byte, error) { return body[:end], nil },
		move,
		func() ([]byte, error) { return nil, io.EOF },
	}
	next := func() ([]byte, error) {
		step := steps[0]
		steps = steps[1:]
		return step()
	}
	web.Stream(c, next, releaseAtEnd(c))
}

// streamQueryOf reads what the request says about the stream.
func streamQueryOf(c *fiber.Ctx) (streamQuery, error) {
	var ask streamQuery
	var err error
	if ask.form, err = statedForm(c.Query("format"), c.Get(fiber.HeaderAccept)); err != nil {
		return ask, err
	}
	if ask.wait, err = millis(c, "wait", streamHold, job.MinWait, job.MaxWait); err != nil {
		return ask, err
	}
	text, name := c.Query("cursor"), "cursor"
	ask.own = c.Context().QueryArgs().Has(name)
	if id := c.Get(headerLastEventID); ask.form == formEvents && id != "" { // the newer of the two: a client that came back
		text, name, ask.own = id, headerLastEventID, true
	}
	if !ask.own {
		return ask, nil
	}
	if ask.after, err = strconv.ParseUint(strings.TrimSpace(text), 10, 63); err != nil {
		return ask, web.Errorf(web.InvalidRequest, "%s is invalid; must be a cursor that an earlier answer told, or 0", name)
	}
	return ask, nil
}

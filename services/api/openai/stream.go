package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/chunks"
	"flightline/shared/job"
	"flightline/shared/web"
)

// stream is an answer while it is written.
type stream struct {
	h       *Handler
	request request
	follow  *chunks.Follower
	held    context.Context //nolint:containedctx // the writer, which runs after the handler, is given none
	after   uint64
	run     [2]int // attempt and run that the text is from
	text    eventText
	begun   bool // what came before the head is written
	told    bool // the last text is written
	over    bool // the job has nothing more to say: it needs no cancelling
}

// answerStream answers with the worker's events as they come. The head is held
// back until there is something to write: the first text, the job's end, or
// after Config.MaxSilence a comment. So an error that comes first, the usual one, has
// its HTTP status, and no client or proxy hears nothing for longer than that.
func (h *Handler) answerStream(ctx context.Context, c *fiber.Ctx, r request) error {
	follow, err := chunks.Follow(h.Queue, r.endpoint, r.id)
	if err != nil {
		return err
	}
	if _, err = h.submit(ctx, r); err != nil {
		follow.Close()
		return err
	}
	r.job = job.Request{} // up to 20 MB, not needed while the client waits
	web.BodyDone(c)
	held, release := web.LongPoll(c, maxWait)
	v := &stream{h: h, request: r, follow: follow, held: held}
	failed, err := v.first() //nolint:contextcheck // it outlasts ctx
	if failed != nil || err != nil {
		broken := held.Err() != nil // the release ends it too
		v.end(release)
		switch {
		case failed != nil:
			return send(c, failed.reply())
		case broken:
			return brokenWait(err)
		}
		return err
	}
	h.SendEvents(c, v.next, func() { v.end(release) })
	return nil
}

// end lets everything go, and the job with it if it still has something to say.
func (v *stream) end(release func()) {
	v.follow.Close()
	release()
	if !v.over {
		v.h.abandon(v.held, v.request)
	}
}

// first waits until there is something to write.
func (v *stream) first() (*failure, error) {
	for {
		failed, err := v.step()
		if failed != nil || err != nil || v.over || v.text.Len() > 0 {
			return failed, err
		}
	}
}

// next returns the next text. What cannot be told by the status any more is an
// event.
func (v *stream) next() ([]byte, error) {
	if !v.begun {
		v.begun, v.told = true, v.over
		return v.text.Bytes(), nil
	}
	if v.told {
		return nil, io.EOF
	}
	v.text.flushed()
	failed, err := v.step()
	switch {
	case errors.Is(err, web.ErrGone):
		return nil, err
	case errors.Is(err, web.ErrStopping):
		failed = newFailure(http.StatusServiceUnavailable, "the server is stopping", "", web.Unavailable)
	case err != nil:
		v.h.Log.ErrorContext(v.held, "openai stream broken off", "endpoint", v.request.endpoint.ID, "job", v.request.id, "err", err)
		failed = newFailure(http.StatusInternalServerError, "the job can no longer be read", "", web.Internal)
	}
	if failed != nil {
		v.text.fail(failed.body)
	}
	v.told = v.over || failed != nil
	return v.text.Bytes(), nil
}

// step waits for news, for Config.MaxSilence at most, and adds it to the text. A failure
// ends the answer. An outage of JetStream is silence.
func (v *stream) step() (*failure, error) {
	ctx, cancel := context.WithTimeout(v.held, v.h.MaxSilence)
	defer cancel()
	failed, err := v.news(ctx)
	switch {
	case err == nil:
		return failed, nil
	case v.held.Err() != nil:
		return nil, context.Cause(v.held)
	case ctx.Err() != nil:
		v.text.ping()
		return nil, nil
	}
	return nil, err
}

func (v *stream) news(ctx context.Context) (failed *failure, err error) {
	var chunks []chunks.Chunk
	var j *job.Job
	var more bool
	err = retryUnavailable(ctx, func() (err error) {
		chunks, j, more, err = v.follow.Next(ctx, v.after, maxChunks)
		return err
	})
	switch {
	case v.held.Err() != nil:
		return nil, v.held.Err()
	case errors.Is(err, job.ErrNotFound):
		v.over = true
		return expired(), nil
	case err != nil:
		return nil, err
	case !v.goesOn(j):
		v.over = j.Status.Terminal()
		return cmp.Or(failureOf(j), workerLost()), nil
	case len(chunks) == 0 && !j.Status.Terminal():
		v.text.ping()
		return nil, nil
	}
	if failed = v.tell(chunks); failed == nil && j.Status.Terminal() && !more {
		failed, err = v.finish(ctx, j)
		v.over = err == nil
	}
	return failed, err
}

// goesOn reports whether the job goes on with what is shown of it. Another run
// begins the answer again: that is too late once some of it is shown.
func (v *stream) goesOn(j *job.Job) bool {
	run := [2]int{j.Attempt, j.Run}
	if j.Run == 0 || run == v.run {
		return true
	}
	if v.text.shown {
		return false
	}
	v.run = run
	v.text.reset()
	return true
}

// tell adds chunks, which are all of v.run.
func (v *stream) tell(chunks []chunks.Chunk) *failure {
	for _, chunk := range chunks {
		v.after = chunk.Seq
		output := outputOf(chunk.Data)
		if failed := failureIn(output); failed != nil && !v.text.said {
			v.over = true // an engine that says so is done
			return failed
		}
		v.text.add(output)
	}
	return nil
}

// finish adds what the end brings: all of it, if the handler streams nothing.
func (v *stream) finish(ctx context.Context, j *job.Job) (*failure, error) {
	if failed := failureOf(j); failed != nil {
		return failed, nil
	}
	if v.text.said {
		v.text.done()
		return nil, nil
	}
	if len(j.Output) == 0 { // it may lie beside the record
		err := retryUnavailable(ctx, func() (err error) {
			j, err = v.h.Queue.Status(ctx, v.request.endpoint, v.request.id)
			return err
		})
		if errors.Is(err, job.ErrNotFound) {
			return expired(), nil
		}
		if err != nil {
			return nil, err
		}
	}
	if emptyOutput(j.Output) {
		return noOutput(), nil
	}
	outputs, ok := elementsOf(j.Output)
	if !ok {
		outputs = []json.RawMessage{j.Output}
	}
	if failed := failureIn(bytes.TrimSpace(outputs[0])); failed != nil {
		return failed, nil
	}
	for _, output := range outputs {
		v.text.add(output)
	}
	v.text.done()
	return nil, nil
}

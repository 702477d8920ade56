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
	h            *Handler
	request      request
	follow       *chunks.Follower
	held         context.Context //nolint:containedctx // the writer, which runs after the handler, is given none
	after        uint64
	run          [2]int // attempt and run that the text is from
	text         eventText
	firstWritten bool // the first text is written, with the head
	lastWritten  bool // the last text is written
	jobDone      bool // the job ends by itself: it need not be cancelled
}

// answerStream answers with the worker's events as they come. The head is held
// back until there is something to write: the first text, the job's end, or
// after Config.MaxSilence a comment. So an error that comes first, the usual one, has
// its HTTP status, and no client or proxy waits longer than that for a byte.
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
	failed, err := v.waitFirst() //nolint:contextcheck // it outlasts ctx
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

// end releases the follower and the wait, and cancels the job unless jobDone.
func (v *stream) end(release func()) {
	v.follow.Close()
	release()
	if !v.jobDone {
		v.h.abandon(v.held, v.request, false)
	}
}

// waitFirst waits until there is something to write.
func (v *stream) waitFirst() (*failure, error) {
	for {
		failed, err := v.waitNext()
		if failed != nil || err != nil || v.jobDone || v.text.Len() > 0 {
			return failed, err
		}
	}
}

// next returns the next text. What comes too late for the status is an
// event.
func (v *stream) next() ([]byte, error) {
	if !v.firstWritten {
		v.firstWritten, v.lastWritten = true, v.jobDone
		return v.text.Bytes(), nil
	}
	if v.lastWritten {
		return nil, io.EOF
	}
	v.text.discardWritten()
	failed, err := v.waitNext()
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
		v.text.addFailure(failed.body)
	}
	v.lastWritten = v.jobDone || failed != nil
	return v.text.Bytes(), nil
}

// waitNext waits for the next chunks or the job's end, for Config.MaxSilence at most, and
// adds them to the text. A failure ends the answer. During an outage of JetStream it waits.
func (v *stream) waitNext() (*failure, error) {
	ctx, cancel := context.WithTimeout(v.held, v.h.MaxSilence)
	defer cancel()
	failed, err := v.readNext(ctx)
	switch {
	case err == nil:
		return failed, nil
	case v.held.Err() != nil:
		return nil, context.Cause(v.held)
	case ctx.Err() != nil:
		v.text.addPing()
		return nil, nil
	}
	return nil, err
}

// readNext adds the next chunks to the text, and what follows from the job's status.
func (v *stream) readNext(ctx context.Context) (failed *failure, err error) {
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
		v.jobDone = true
		return expired(), nil
	case err != nil:
		return nil, err
	case !v.sameRun(j):
		v.jobDone = j.Status.Terminal()
		return cmp.Or(failureOf(j), workerLost()), nil
	case len(chunks) == 0 && !j.Status.Terminal():
		v.text.addPing()
		return nil, nil
	}
	if failed = v.addChunks(chunks); failed == nil && j.Status.Terminal() && !more {
		failed, err = v.addFinalOutput(ctx, j)
		v.jobDone = err == nil
	}
	return failed, err
}

// sameRun reports whether the answer can go on: false if another run of the job began after
// some text was sent. Without any text sent it begins again with the new run.
func (v *stream) sameRun(j *job.Job) bool {
	run := [2]int{j.Attempt, j.Run}
	if j.Run == 0 || run == v.run {
		return true
	}
	if v.text.outputSent {
		return false
	}
	v.run = run
	v.text.reset()
	return true
}

// addChunks adds chunks, which are all of v.run.
func (v *stream) addChunks(chunks []chunks.Chunk) *failure {
	for _, chunk := range chunks {
		v.after = chunk.Seq
		output := outputOf(chunk.Data)
		if failed := failureIn(output); failed != nil && !v.text.hasOutput {
			v.jobDone = true // an engine that says so is done
			return failed
		}
		v.text.add(output)
	}
	return nil
}

// addFinalOutput adds what is left to write when the job has ended: its whole output if no
// chunk came before, else only the end of the stream. It returns a failure to show to the
// client, or an error if the output could not be read.
func (v *stream) addFinalOutput(ctx context.Context, j *job.Job) (*failure, error) {
	if failed := failureOf(j); failed != nil {
		return failed, nil
	}
	if v.text.hasOutput {
		v.text.addEnd()
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
	v.text.addEnd()
	return nil, nil
}

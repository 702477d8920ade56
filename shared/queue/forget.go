package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"flightline/shared/job"
	"flightline/streams"
)

// forgetGrace is Config.ForgetGrace if that is 0: longer than any call lasts
// that still saw the job.
const forgetGrace = 10 * time.Second

// ForgetAt is when Forget may remove a terminal attempt, in server time.
func (q *Queue) ForgetAt(j *job.Job) time.Time {
	return j.GoneAt().Add(cmp.Or(q.cfg.ForgetGrace, forgetGrace))
}

// Forget removes the attempt whose record's newest write in partition p is
// seq, with its payloads and chunks, if it is over, its retention is, and its
// queue message is gone (data-model.md, principle 4). Whoever calls it has
// made sure that the events of this attempt and those before are on the disk.
// done is false if it is too early: ask again. It bears repeating; it returns
// ErrUnavailable.
func (q *Queue) Forget(ctx context.Context, p int, seq uint64) (done bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	m, err := q.leaderSeq(ctx, streams.Records(p), seq)
	if errors.Is(err, errNoMessage) {
		return true, nil // written again since, or forgotten
	}
	if err != nil {
		return false, err
	}
	r, err := headOf(p, m.subject, m.header, m.seq)
	switch {
	case err != nil:
		return false, err
	case !r.Status.Terminal():
		return true, nil // it ends with another write
	case q.Now().Before(q.ForgetAt(&r.Job)):
		return false, nil
	}
	at := place{r.Endpoint, p}
	later, waits, err := q.follower(ctx, at, r)
	if err != nil || waits {
		return false, err
	}
	if !later {
		if err := q.forgetParts(ctx, at, r); err != nil {
			return false, err
		}
	}
	kept, err := q.forgetEarlier(ctx, at, r)
	if err != nil {
		return false, err
	}
	if r.kept || kept {
		return true, nil
	}
	return true, q.remove(ctx, streams.Records(p), seq)
}

// forgetEarlier removes the records of earlier attempts first: with r gone the
// last of them would be taken for where the job stands. kept: one of them stays to
// its physical end, and so must r.
func (q *Queue) forgetEarlier(ctx context.Context, at place, r *record) (kept bool, err error) {
	for attempt := r.Attempt - 1; attempt > 0; attempt-- {
		earlier, err := q.readRecord(ctx, at, r.ID, attempt)
		if errors.Is(err, errNoMessage) {
			continue
		}
		if err != nil {
			return false, err
		}
		if earlier.kept {
			kept = true
			continue
		}
		if err := q.remove(ctx, streams.Records(at.partition), earlier.seq); err != nil {
			return false, err
		}
	}
	return kept, nil
}

// follower looks for what lies in the queue under the job of the finished
// attempt r. later: a later attempt, which needs the payloads. waits: a
// message of r itself; it is removed, and must be seen to be gone before the
// record that decides about it may go.
func (q *Queue) follower(ctx context.Context, at place, r *record) (later, waits bool, err error) {
	msg, err := q.readMessage(ctx, at, r.ID)
	if err != nil && !errors.Is(err, errNoMessage) {
		return false, false, err
	}
	if msg != nil && msg.Attempt <= r.Attempt {
		return false, true, q.remove(ctx, streams.Jobs(at.endpoint), msg.queueSeq)
	}
	if msg != nil {
		return true, false, nil
	}
	if !retryable(r.Status) {
		return false, false, nil // the last attempt there can be
	}
	_, err = q.readRecord(ctx, at, r.ID, r.Attempt+1)
	if errors.Is(err, errNoMessage) {
		return false, false, nil
	}
	return err == nil, false, err
}

// forgetParts removes what lies beside the record of a job's last attempt. An
// ordinary job has nothing there and costs no call. A run that did not complete
// may have left an output that no record names.
func (q *Queue) forgetParts(ctx context.Context, at place, r *record) error {
	again := r.Attempt > 1 || r.Run > 1 || r.Run > 0 && r.Status != job.Completed
	if again || r.beside {
		if err := q.purgeAll(ctx, streams.Payloads(at.partition), streams.AnyPayload(at.partition, at.endpoint, r.ID)); err != nil {
			return err
		}
	}
	if again || r.emitted {
		return q.purgeAll(ctx, streams.Output(at.partition), streams.AnyOutput(at.partition, at.endpoint, r.ID))
	}
	return nil
}

// SpareInput reports whether the attempt may have a large input that nobody
// asks for again: no retry may, and the webhook has its copy, once it was
// announced for good.
func (f Fact) SpareInput() bool {
	return f.beside && f.Job.Status.Terminal() && !retryable(f.Job.Status)
}

// DropInput removes a large input that is spare. It bears repeating; it
// returns ErrUnavailable.
func (q *Queue) DropInput(ctx context.Context, f Fact) error {
	if !f.SpareInput() {
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	return q.purgeAll(ctx, streams.Payloads(f.Partition), streams.AnyInput(f.Partition, f.Job.Endpoint, f.Job.ID))
}

func (q *Queue) purgeAll(ctx context.Context, stream, filter string) error {
	body, err := json.Marshal(map[string]string{"filter": filter})
	if err != nil {
		return fmt.Errorf("purge %s: %w", filter, err)
	}
	return q.command(ctx, streams.StreamPurge(stream), body, "purge "+filter)
}

// remove deletes one message by its sequence and returns nil once it is gone.
func (q *Queue) remove(ctx context.Context, stream string, seq uint64) error {
	err := q.command(ctx, streams.MsgDelete(stream), fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, seq), "delete from "+stream)
	if err == nil {
		return nil
	}
	if _, gone := q.leaderSeq(ctx, stream, seq); errors.Is(gone, errNoMessage) {
		return nil
	}
	return err
}

// leaderSeq reads one message by its sequence from the leader; errNoMessage.
func (q *Queue) leaderSeq(ctx context.Context, stream string, seq uint64) (*stored, error) {
	return untilAnswered(ctx, func() (*stored, error) { return q.leaderGet(ctx, stream, fmt.Appendf(nil, `{"seq":%d}`, seq)) })
}

// command sends an API request whose answer says no more than that it was done.
func (q *Queue) command(ctx context.Context, subject string, body []byte, doing string) error {
	answer, err := q.request(ctx, subject, body)
	if err != nil {
		return err
	}
	var got struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &got); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if got.Error != nil {
		return q.explain(ctx, got.Error, streams.StreamOf(subject), doing)
	}
	return nil
}

package queue

import (
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/record"
)

func TestJudge(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	const lease = 30 * time.Second
	served := deliveryFacts{seq: 7, expires: now.Add(time.Hour), holder: "me", now: now, available: lease, lease: lease, maxLost: 3}
	with := func(change func(*deliveryFacts)) deliveryFacts {
		d := served
		change(&d)
		return d
	}
	asked := with(func(d *deliveryFacts) { d.asked = true })
	held := func(change func(*record.Record)) *record.Record {
		r := &record.Record{Job: job.Job{Expires: now.Add(time.Hour), Deadline: now.Add(time.Minute)}, QueueSeq: 7, Holder: "other"}
		r.Status = job.InProgress
		if change != nil {
			change(r)
		}
		return r
	}
	status := func(s job.Status) *record.Record {
		return held(func(r *record.Record) { r.Status = s; r.Deadline = time.Time{} })
	}
	waiting := func(change func(*record.Record)) *record.Record {
		return held(func(r *record.Record) {
			r.Status = job.InQueue
			change(r)
		})
	}
	requeued := func(longer time.Duration, at time.Time) *record.Record {
		return waiting(func(r *record.Record) { r.Requeued, r.QueueExpires, r.Changed = true, served.expires.Add(longer), at })
	}
	expired := func(s job.Status) *record.Record {
		r := status(s)
		r.Expires = now
		return r
	}
	detached := func(seq uint64, requeued bool) *record.Record {
		return held(func(r *record.Record) { r.QueueSeq, r.Requeued = seq, requeued })
	}
	astray := func(since time.Duration, before int) *record.Record {
		return held(func(r *record.Record) { r.AckTimeout, r.Started, r.Undelivered = time.Second, now.Add(-since), before })
	}
	tests := []struct {
		name string
		r    *record.Record
		d    deliveryFacts
		want decision
	}{
		{"nobody has touched it", nil, served, decideBegin},
		{"untouched, but its ttl is over", nil, with(func(d *deliveryFacts) { d.expires = now }), decideHold},
		{"completed", status(job.Completed), served, decideDrop},
		{"failed", status(job.Failed), served, decideDrop},
		{"timed out", status(job.TimedOut), served, decideDrop},
		{"cancelled", status(job.Cancelled), served, decideDrop},
		{"cancelled and expired", expired(job.Cancelled), served, decideDrop},
		{"given back", status(job.InQueue), served, decideResume},
		{"its ttl was made shorter and is over", expired(job.InQueue), served, decideHold},
		{"about to be replaced", requeued(time.Hour, now), served, decideHold},
		{"about to be replaced for too long", requeued(time.Hour, now.Add(-requeueTimeout)), served, decideRequeue},
		{"replaced", requeued(0, now), served, decideResume},
		{"held, and this process saw a whole lease", held(nil), asked, decideTakeOver},
		{"held, and there was an outage since", held(nil), with(func(d *deliveryFacts) { d.asked = true; d.available = lease - 1 }), decideHold},
		{"held, and this process just started", held(nil), with(func(d *deliveryFacts) { d.asked = true; d.available = 0 }), decideHold},
		{"held, two workers lost before", held(func(r *record.Record) { r.Lost = 2 }), asked, decideGiveUp},
		{"held, two lost before, but an outage", held(func(r *record.Record) { r.Lost = 2 }), with(func(d *deliveryFacts) { d.asked = true; d.available = 0 }), decideHold},
		{"held, its holder was not asked", held(nil), served, decideAsk},
		{"held, and two lost before, its holder was not asked", held(func(r *record.Record) { r.Lost = 2 }), served, decideAsk},
		{"held, its holder lives", held(nil), with(func(d *deliveryFacts) { d.asked, d.alive = true, true }), decideHold},
		{"nobody said that it arrived", astray(time.Minute, 0), served, decideHandAgain},
		{"nobody said so, and one was lost before", held(func(r *record.Record) { r.Lost, r.AckTimeout, r.Started = 2, time.Second, now.Add(-time.Minute) }), served, decideHandAgain},
		{"nobody said so yet", astray(time.Second-1, 0), served, decideHold},
		{"nobody could say so in an outage", astray(time.Minute, 0), with(func(d *deliveryFacts) { d.available = time.Second - 1 }), decideHold},
		{"nobody said so, this process saw enough of it", astray(time.Minute, 0), with(func(d *deliveryFacts) { d.available = time.Second }), decideHandAgain},
		{"nobody said so, once too often", astray(time.Minute, maxUndelivered), asked, decideTakeOver},
		{"nobody said so, past its deadline", held(func(r *record.Record) { r.AckTimeout, r.Deadline = time.Second, now.Add(-deadlineGrace) }), served, decideTimeOut},
		{"held by this consumer", held(nil), with(func(d *deliveryFacts) { d.running = true }), decideHold},
		{"written by this consumer, which runs nothing", held(func(r *record.Record) { r.Holder = "me" }), with(func(d *deliveryFacts) { d.available = 0 }), decideAdopt},
		{"held, past its deadline, the holder is at it", held(func(r *record.Record) { r.Deadline = now.Add(-time.Second) }), served, decideHold},
		{"held, past its deadline and forgotten", held(func(r *record.Record) { r.Deadline = now.Add(-deadlineGrace) }), served, decideTimeOut},
		{"held under another message", detached(6, false), served, decideDetach},
		{"given back without a message", detached(6, true), served, decideResume},
		{"held and expired long ago", held(func(r *record.Record) { r.Expires = now.Add(-deadlineGrace) }), served, decideDrop},
		{"held and expired", held(func(r *record.Record) { r.Expires = now }), served, decideHold},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := decide(tc.r, tc.d); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestPatience(t *testing.T) {
	for service, want := range map[time.Duration]time.Duration{0: 31 * time.Second, 20 * time.Second: 11 * time.Second, time.Hour: time.Second} {
		if got := redeliveryDelay(deliveryFacts{available: service, lease: 30 * time.Second}); got != want {
			t.Errorf("after %v of service: %v, want %v", service, got, want)
		}
	}
	if got := redeliveryDelay(deliveryFacts{available: time.Hour, lease: 30 * time.Second, alive: true}); got != 30*time.Second {
		t.Errorf("its holder lives: %v, want its lease", got)
	}
}
